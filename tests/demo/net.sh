#!/usr/bin/env bash
# The test network, made of network namespaces: used by the demo and by the end-to-end tests.
#
#   net.sh up PREFIX nat|dr    make it        net.sh down PREFIX    end its processes, remove it
#   net.sh sweep               remove every network named weir-PID whose process PID is gone
#
# nat, the balancer between two networks; its servers' default route is the balancer:
#
#   PREFIX-client          PREFIX-lb                    PREFIX-switch        PREFIX-rs1, PREFIX-rs2
#   192.0.2.10/24 eth0 --- wan            lan --------- bridge ------------- eth0 10.0.0.11/24
#                          192.0.2.1/24   10.0.0.254/24                      eth0 10.0.0.12/24
#                          VIP 192.0.2.100
#
# dr, one network; servers answer the client directly and hold the VIP on lo without ARP for it:
#
#   PREFIX-client 192.0.2.10/24, PREFIX-lb wan 192.0.2.1/24, PREFIX-rs1 192.0.2.11/24,
#   PREFIX-rs2 192.0.2.12/24, all on the bridge of PREFIX-switch; VIP 192.0.2.100
#
# The balancer's addresses belong to the balancer alone: to the kernel of PREFIX-lb its ports are bare
# links, and ip_forward is 0, so whatever gets through got through Weir. Checksum and segmentation
# offloads are off on every end (a veth pair otherwise hands over packets without checksums), and IPv6
# is off (router solicitations would disturb the counts).
set -euo pipefail

VIP=192.0.2.100
HOSTS=(client lb switch rs1 rs2)

up() { # prefix, topology
  P=$1
  local host
  for host in "${HOSTS[@]}"; do
    ip netns add "$P-$host"
    quiet "$host"
  done
  ip -n "$P-switch" link add bridge type bridge forward_delay 0 mcast_snooping 0
  ip -n "$P-switch" link set bridge up
  plug rs1 eth0
  plug rs2 eth0
  case $2 in
    nat)
      link client eth0 lb wan
      plug lb lan
      address client 192.0.2.10/24
      address rs1 10.0.0.11/24 10.0.0.254
      address rs2 10.0.0.12/24 10.0.0.254
      ;;
    dr)
      plug client eth0
      plug lb wan
      address client 192.0.2.10/24
      address rs1 192.0.2.11/24
      address rs2 192.0.2.12/24
      for host in rs1 rs2; do
        # The address of the balancer must not be claimed or advertised on the wire by the servers.
        set_sysctl "$host" net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
        ip -n "$P-$host" address add "$VIP/32" dev lo
      done
      ;;
    *)
      echo "net.sh: no topology called '$2' (nat, dr)" >&2
      exit 2
      ;;
  esac
}

# What a host must not do by itself: IPv6, forwarding.
quiet() {
  set_sysctl "$1" net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 net.ipv4.ip_forward=0
  ip -n "$P-$1" link set lo up
}

set_sysctl() { # host, settings...
  local host=$1
  shift
  ip netns exec "$P-$host" sysctl -qw "$@"
}

link() { # host, device, host, device: a cable
  ip link add "$2" netns "$P-$1" type veth peer name "$4" netns "$P-$3"
  ready "$1" "$2"
  ready "$3" "$4"
}

plug() { # host, device: a cable to the switch
  link "$1" "$2" switch "$1"
  ip -n "$P-switch" link set "$1" master bridge
}

ready() { # host, device
  ip netns exec "$P-$1" ethtool -K "$2" rx off tx off sg off tso off gso off gro off >/dev/null
  # One CPU receives: a veth otherwise queues on the CPU its sender runs on, and a sender that the
  # scheduler moves overtakes its own packets.
  ip netns exec "$P-$1" bash -c "echo 1 >/sys/class/net/$2/queues/rx-0/rps_cpus"
  ip -n "$P-$1" link set "$2" up
}

address() { # host, address, default route
  ip -n "$P-$1" address add "$2" dev eth0
  [ -z "${3:-}" ] || ip -n "$P-$1" route add default via "$3"
}

down() { # prefix
  local host signal pids
  for signal in TERM KILL; do
    for _ in {1..20}; do
      pids=$(for host in "${HOSTS[@]}"; do ip netns pids "$1-$host" 2>/dev/null || :; done)
      [ -n "$pids" ] || break 2
      # shellcheck disable=SC2086 # a list of numbers
      kill -s "$signal" $pids 2>/dev/null || :
      sleep 0.1
    done
  done
  for host in "${HOSTS[@]}"; do
    [ ! -e "/run/netns/$1-$host" ] || ip netns delete "$1-$host"
  done
}

sweep() {
  local file
  for file in /run/netns/weir-*; do
    if [[ $file =~ /(weir-([0-9]+))-[a-z0-9]+$ ]] && [ ! -d "/proc/${BASH_REMATCH[2]}" ]; then
      down "${BASH_REMATCH[1]}"
    fi
  done
}

case "${1:-}:$#" in
  up:3) up "$2" "$3" ;;
  down:2) down "$2" ;;
  sweep:1) sweep ;;
  *)
    echo 'usage: net.sh up PREFIX nat|dr | net.sh down PREFIX | net.sh sweep' >&2
    exit 2
    ;;
esac
