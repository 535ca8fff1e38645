//! Which features go together: decided here and nowhere else (Linux: `netdev_fix_features`).

use arrayvec::ArrayVec;

use crate::Features;

/// A feature a device offered that is not used, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedFeature {
    /// The feature (one bit).
    pub feature: Features,
    /// Why, for the log.
    pub why: &'static str,
}

/// Each feature with what it depends on.
const NEEDS: [(Features, Features, &str); 5] = [
    (Features::TSO4, Features::SG, "TSO4 dropped: no scatter-gather"),
    (Features::TSO6, Features::SG, "TSO6 dropped: no scatter-gather"),
    (Features::TSO4, Features::CSUM, "TSO4 dropped: no checksum offload"),
    (Features::TSO6, Features::CSUM, "TSO6 dropped: no checksum offload"),
    (Features::GRO_HW, Features::RXCSUM, "GRO_HW dropped: received checksums are not verified"),
];

/// The features that are used of those `offered`, and the others with the reason.
///
/// Segments made by a device need a scattered packet to be cut and a checksum each; aggregates
/// have no checksum on the wire, so a device that merges must verify.
pub fn fix_features(offered: Features) -> (Features, ArrayVec<DroppedFeature, { NEEDS.len() }>) {
    let mut features = offered;
    let mut dropped = ArrayVec::new();
    for (feature, needs, why) in NEEDS {
        if features.contains(feature) && !features.contains(needs) {
            features.remove(feature);
            dropped.push(DroppedFeature { feature, why });
        }
    }
    (features, dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmentation_needs_scatter_gather_and_checksums() {
        let (f, why) = fix_features(Features::TSO4 | Features::TSO6 | Features::SG);
        assert_eq!(f, Features::SG);
        assert_eq!(why.len(), 2);
        let (f, why) = fix_features(Features::TSO4 | Features::CSUM);
        assert_eq!(f, Features::CSUM);
        assert!(why[0].why.contains("scatter-gather"));
    }

    #[test]
    fn no_set_is_changed_twice() {
        for bits in 0..64 {
            let (f, _) = fix_features(Features::from_bits_truncate(bits));
            assert_eq!(fix_features(f), (f, ArrayVec::new()));
        }
    }

    #[test]
    fn a_complete_set_is_kept() {
        assert_eq!(fix_features(Features::all()), (Features::all(), ArrayVec::new()));
    }
}
