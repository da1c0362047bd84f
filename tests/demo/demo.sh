#!/usr/bin/env bash
# The demo: a client, Weir and four real servers in network namespaces, with real requests.
#
#   demo.sh            run it and remove everything     KEEP=1 demo.sh   leave it up
#   demo.sh remove     remove what KEEP=1 left
#
# It checks what it shows: exit 0 means that every request was answered in turn and that the statistics
# equal what was on the wire. Exit 1: something was not as expected, 3: not root or nothing built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

DEMO=weir-demo # prefix of the namespaces
DIR=/run/weir-demo
VIP=192.0.2.100
CLIENT=192.0.2.10
WEIR=${WEIR_BIN:-$PWD/target/release/weir}
PEER=$PWD/target/release/udp-peer
HTTP_REQUESTS=20
UDP_REQUESTS=10

main() {
  check_machine
  remove 2>/dev/null
  trap 'finish $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir -m 700 "$DIR"

  step 'network: client -- balancer -- switch -- two servers; the balancer'"'"'s kernel has no address and forwards nothing'
  tests/demo/net.sh up "$DEMO" nat
  [ "$(in_host lb cat /proc/sys/net/ipv4/ip_forward)" = 0 ] || fail 'the kernel of the balancer forwards packets'
  [ -z "$(ip -n "$DEMO-lb" -4 -br address show up | grep -v '^lo ' | awk '{print $3}')" ] || fail 'a port has a kernel address'

  step 'servers: on each of rs1 and rs2 an nginx (port 8080) and a UDP echo (port 7007) that answer their own name'
  start_servers rs1
  start_servers rs2

  step 'balancer: weir run --config tests/demo/weir.toml, on DPDK packet-socket ports, without huge pages'
  start_weir

  step 'captures: tcpdump on the client'"'"'s and on the servers'"'"' links, to compare with what Weir says'
  capture client eth0
  capture rs1 eth0
  capture rs2 eth0

  step "web: $HTTP_REQUESTS requests with curl to http://$VIP/, round robin over two servers"
  for _ in $(seq "$HTTP_REQUESTS"); do
    in_host client curl -sS --max-time 5 "http://$VIP/" || fail 'a request was not answered'
  done >"$DIR/http"
  answers "$DIR/http" "$HTTP_REQUESTS"

  step "UDP: $UDP_REQUESTS datagrams, each from a socket of its own"
  in_host client "$PEER" ask "$VIP:7" "$UDP_REQUESTS" >"$DIR/udp-answers" || fail 'a datagram was not answered'
  cut -d: -f1 "$DIR/udp-answers" >"$DIR/udp"
  answers "$DIR/udp" "$UDP_REQUESTS"

  step 'statistics: totals are exact two seconds after the last packet; against the client'"'"'s capture'
  sleep 2.1
  stop_captures
  weir list
  weir list --stats | tee "$DIR/list"
  compare TCP 80
  compare UDP 7

  step 'on the server: the client'"'"'s own address, TTL one less (64 - 1), and not a trace of the service'"'"'s address'
  server_side rs1
  server_side rs2
  tcpdump -nv -c 1 -r "$DIR/rs1.pcap" "src host $CLIENT" 2>/dev/null | sed 's/^ */    /'

  [ -z "${KEEP:-}" ] || { explain && exit; }

  step 'stop: SIGTERM ends Weir in order, then everything is removed'
  stop_weir
  printf '\nThe demo ran as expected.\n'
}

check_machine() {
  [ "$(id -u)" -eq 0 ] || cannot 'network namespaces need root; run: sudo make demo'
  local file
  for file in "$WEIR" "$PEER"; do
    [ -x "$file" ] || cannot "$file is not built; run: make demo"
  done
}
cannot() {
  printf 'demo: %s\n' "$1" >&2
  exit 3
}

NUMBER=0
step() { NUMBER=$((NUMBER + 1)) && printf '\n%s. %s\n' "$NUMBER" "$1"; }
ok() { printf '   ok: %s\n' "$1"; }
fail() {
  printf '\ndemo: NOT as expected: %s\n' "$1" >&2
  exit 1
}

in_host() { # host, command...
  local host=$1
  shift
  ip netns exec "$DEMO-$host" "$@"
}

spawn() { # host, log, command...: in the background, out of reach of the terminal's Ctrl-C
  local host=$1 log=$2
  shift 2
  setsid ip netns exec "$DEMO-$host" "$@" >"$DIR/$log" 2>&1 </dev/null &
}

await() { # seconds, command...: until it succeeds
  local tries=$(($1 * 20))
  shift
  while ! "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.05
  done
}

start_servers() { # host
  mkdir "$DIR/$1"
  sed "s|@name@|$1|; s|@port@|8080|; s|@dir@|$DIR/$1|" tests/demo/nginx.conf >"$DIR/$1/nginx.conf"
  spawn "$1" "$1/nginx.log" nginx -e "$DIR/$1/error.log" -c "$DIR/$1/nginx.conf"
  spawn "$1" "$1/udp.log" "$PEER" echo 0.0.0.0:7007 "$1"
  await 5 in_host "$1" curl -s http://127.0.0.1:8080/ || fail "nginx does not answer on $1: $(cat "$DIR/$1/error.log")"
  await 5 in_host "$1" "$PEER" ask 127.0.0.1:7007 1 || fail "the UDP echo does not answer on $1: $(cat "$DIR/$1/udp.log")"
}

weir() { "$WEIR" "$@" --socket "$DIR/weir.sock"; }

start_weir() {
  spawn lb weir.log "$WEIR" run --config tests/demo/weir.toml
  WEIR_PID=$!
  if ! await 15 weir_answers; then
    sed 's/^/    /' "$DIR/weir.log" >&2
    fail 'the balancer did not start; its log is above'
  fi
  ok "pid $WEIR_PID answers on $DIR/weir.sock"
}
weir_answers() { ! kill -0 "$WEIR_PID" 2>/dev/null || weir status; }

stop_weir() {
  local status=0
  kill "$WEIR_PID"
  wait "$WEIR_PID" || status=$?
  [ "$status" -eq 0 ] || fail "weir ended with $status: $(tail -n 5 "$DIR/weir.log")"
  [ ! -e "$DIR/weir.sock" ] || fail 'weir left its socket behind'
  ok 'weir ended with 0'
}

CAPTURES=()
capture() { # host, device
  spawn "$1" "$1.capture" tcpdump -n -U --immediate-mode -s 128 -Z root -i "$2" -w "$DIR/$1.pcap" ip
  CAPTURES+=($!)
  await 5 grep -q 'listening on' "$DIR/$1.capture" || fail "tcpdump: $(cat "$DIR/$1.capture")"
}
stop_captures() {
  kill -INT "${CAPTURES[@]}"
  wait "${CAPTURES[@]}" || :
}

answers() { # file of names, how many: they must alternate
  local count
  count=$(wc -l <"$1")
  printf '   %s\n' "$(tr '\n' ' ' <"$1")"
  [ "$count" -eq "$2" ] || fail "$count answers instead of $2"
  [ "$(uniq "$1" | wc -l)" -eq "$2" ] || fail 'two requests in a row went to the same server'
  [ "$(sort -u "$1" | tr '\n' ' ')" = 'rs1 rs2 ' ] || fail 'not exactly the two servers answered'
  ok "$2 answers, rs1 and rs2 in turn"
}

tally() { # host, filter: packets and bytes of IP in its capture
  tcpdump -nv -r "$DIR/$1.pcap" "$2" 2>/dev/null |
    awk '/, length [0-9]+\)/ { sub(/.*, length /, ""); packets++; bytes += $0 + 0 } END { print packets + 0, bytes + 0 }'
}

compare() { # protocol, L4 port: Weir's statistics of that service against the client's capture
  local conns in out seen said protocol=${1,,}
  if [ "$protocol" = tcp ]; then
    conns=$(tally client "tcp dst port $2 and tcp[tcpflags] & (tcp-syn | tcp-ack) == tcp-syn")
  else
    conns=$UDP_REQUESTS
  fi
  in=$(tally client "$protocol and dst host $VIP and dst port $2")
  out=$(tally client "$protocol and src host $VIP and src port $2")
  seen="${conns% *} ${in% *} ${out% *} ${in#* } ${out#* }"
  said=$(awk -v service="$VIP:$2" -v protocol="$1" '$1 == protocol && $2 == service { print $3, $4, $5, $6, $7 }' "$DIR/list")
  printf '   %-22s %12s %11s %11s %9s %9s\n' "$1 $VIP:$2" connections 'packets in' 'packets out' 'bytes in' 'bytes out'
  # shellcheck disable=SC2086 # five numbers
  printf '     %-20s %12s %11s %11s %9s %9s\n' 'on the wire' $seen Weir $said
  [ "$seen" = "$said" ] || fail "Weir's statistics of $1 $VIP:$2 differ from what was on the wire"
  ok 'equal'
}

server_side() { # host
  local from_client wrong
  from_client=$(tally "$1" "src host $CLIENT")
  [ "${from_client% *}" -gt 0 ] || fail "nothing from $CLIENT reached $1"
  wrong=$(tally "$1" "host $VIP or (src host $CLIENT and ip[8] != 63)")
  [ "${wrong% *}" -eq 0 ] || fail "${wrong% *} packets on $1 name $VIP or have another TTL than 63"
  ok "$1: ${from_client% *} packets from $CLIENT, all with TTL 63, none names $VIP"
}

explain() {
  cat <<EOT

Everything stays up. Look around:
  ip netns exec $DEMO-client curl http://$VIP/
  $WEIR list --stats --socket $DIR/weir.sock        (also: status, drops, conns)
  ip netns exec $DEMO-rs1 tcpdump -ni eth0
  edit tests/demo/weir.toml, then: kill -HUP $WEIR_PID
  log: $DIR/weir.log
Remove it:
  tests/demo/demo.sh remove
EOT
}

remove() {
  tests/demo/net.sh down "$DEMO"
  rm -rf "$DIR"
}

finish() { # exit status
  trap '' INT TERM
  if [ "$1" -eq 0 ] && [ -n "${KEEP:-}" ]; then return; fi
  remove
  if [ -d "$DIR" ] || ip netns list | grep -q "^$DEMO-"; then
    echo 'demo: something could not be removed' >&2
    exit 1
  fi
  ok 'removed: namespaces, links, processes, files'
}

case "${1:-}" in
  '') main ;;
  remove) remove ;;
  *)
    echo 'usage: demo.sh [remove]' >&2
    exit 2
    ;;
esac
