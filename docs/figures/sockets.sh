#!/usr/bin/env bash
# The figures of programs on the stack: docs/figures/sockets.txt. Needs root, cc, iperf3, ip, nsenter; makes its own network
# namespaces. Takes about two minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${IN_NAMESPACE:-}" ]; then
    cargo build --release --workspace
    IN_NAMESPACE=1 exec unshare --net --mount "$0"
fi
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -r "$dir"' EXIT
for program in callcost pingpong; do
    cc -O2 -pthread -o "$dir/$program" "crates/cli/tests/programs/$program.c"
done
ip link set lo up
ip tuntap add dev uc0 mode tap
ip addr add 10.77.0.1/24 dev uc0
ip link set uc0 up
uncopied=target/release/uncopied
ours() { "$uncopied" run --tap uc0 --addr 10.77.0.2/24 -- "$@"; }
preloaded() { UNCOPIED_TAP=uc0 UNCOPIED_ADDR=10.77.0.2/24 LD_PRELOAD=target/release/libuncopied_preload.so "$@"; }

echo "# read(2) of a byte from /dev/zero, ns per call: direct, with the preload library (in turns)"
for _ in 1 2 3 4 5 6 7; do
    echo "$("$dir/callcost") $(preloaded "$dir/callcost")"
done

unshare --net sleep 300 &
other=$!
sleep 0.5
ip link add veth0 type veth peer name veth1
ip addr add 10.78.0.1/24 dev veth0
ip link set veth0 up
ip link set veth1 netns $other
nsenter -t $other -n ip addr add 10.78.0.2/24 dev veth1
nsenter -t $other -n ip link set veth1 up
"$dir/pingpong" serve 7100 &
sleep 0.5
echo
echo "# round trips of a byte, us, p50 and p99: kernel over veth (blocking, epoll), stack over TAP (blocking, epoll, epoll with 10000 more)"
for _ in 1 2 3 4 5; do
    echo "$(nsenter -t $other -n "$dir/pingpong" 10.78.0.1 7100) | $(nsenter -t $other -n "$dir/pingpong" 10.78.0.1 7100 0)" \
        "| $(ours "$dir/pingpong" 10.77.0.1 7100) | $(ours "$dir/pingpong" 10.77.0.1 7100 0) | $(ours "$dir/pingpong" 10.77.0.1 7100 10000)"
done

echo
echo "# iperf3 -c for 3 s over the TAP, Gbit/s and CPU s/GB of the sender: on the stack"
iperf3 -s -D -1 >/dev/null
sleep 0.5
for _ in 1 2 3; do
    ours iperf3 -c 10.77.0.1 -t 3 -J >"$dir/out.json"
    python3 - "$dir/out.json" <<'P'
import json, sys
end = json.load(open(sys.argv[1]))["end"]
sent = end["sum_sent"]
cpu = end["cpu_utilization_percent"]["host_total"] / 100 * sent["seconds"]
print(f'{sent["bits_per_second"] / 1e9:.1f} {cpu / (sent["bytes"] / 1e9):.4f}')
P
    iperf3 -s -D -1 >/dev/null
    sleep 0.5
done
