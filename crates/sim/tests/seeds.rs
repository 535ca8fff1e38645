//! A few worlds, and that a world repeats itself.

use sim::World;

#[test]
fn forty_worlds_keep_every_rule() {
    for seed in 0..40 {
        if let Err(f) = World::new(seed).and_then(World::run) {
            panic!("seed {}: {} (at {:?})", f.seed, f.what, f.at);
        }
    }
}

#[test]
fn a_seed_repeats_its_world_exactly() {
    for seed in [3, 11, 29] {
        let [a, b] = [0, 1].map(|_| World::new(seed).and_then(World::run).map_err(|f| f.what));
        assert_eq!(a, b);
    }
}
