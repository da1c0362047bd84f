//! Forward: next hop, TTL, MTU, and the rewrite of the forwarding method.

use std::net::Ipv4Addr;

use crate::conn::{Direction, Record, flag};
use crate::dest::DestState;
use crate::io::PacketBuf;
use crate::neigh::{Hop, NeighTable, Reach};
use crate::pipeline::Cx;
use crate::pipeline::answer::Refusal;
use crate::pipeline::parse::Meta;
use crate::route::NextHop;
use crate::verdict::DropReason;
use crate::wire::checksum::{self, TTL_DECREMENT};
use crate::wire::icmp::Problem;
use crate::wire::{ethernet, ipv4, udp};

/// Offset of the checksum in a TCP header, bytes (RFC 9293 3.1).
const TCP_CHECK: usize = 16;
/// Offset of the checksum in a UDP header, bytes (RFC 768).
const UDP_CHECK: usize = 6;

/// One endpoint of a flow as it stands in a packet.
#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

/// Makes a request ready for its connection's server: next hop, TTL, MTU, rewrite. It has been counted, whatever
/// happens to it here.
#[inline(always)]
pub(super) fn ready_request<B: PacketBuf>(
    conn: &mut Record,
    dest: &DestState,
    neigh: &NeighTable,
    cx: &Cx<'_>,
    buf: &mut B,
    meta: &Meta,
) -> Result<(Hop, Reach), Refusal> {
    let mut to = cached(neigh, conn.fwd_hop);
    if is_stale(conn, cx, to.1) {
        to = find_server(conn, dest, neigh, cx)?;
    }
    let mtu = mtu_towards(cx, to.1);
    if meta.ttl <= 1 {
        return Err(Refusal::answered(DropReason::Ttl, Problem::TtlExceeded));
    }
    if meta.ip_len > mtu {
        // The packet quoted in the error shows the TTL that it would have had on that link.
        pass(buf, meta, None);
        return Err(too_long(buf, mtu));
    }
    let nat = conn.method() == flag::NAT;
    pass(buf, meta, nat.then(|| Rewrite::request(conn)));
    Ok(to)
}

/// Makes a reply ready for its client, or says why it cannot go: nothing is counted or changed then, as a router
/// drops it before address translation sees it.
#[inline(always)]
pub(super) fn ready_reply<B: PacketBuf>(
    conn: &mut Record,
    neigh: &NeighTable,
    cx: &Cx<'_>,
    buf: &mut B,
    meta: &Meta,
) -> Result<(Hop, Reach), Refusal> {
    if meta.ttl <= 1 {
        return Err(Refusal::answered(DropReason::Ttl, Problem::TtlExceeded));
    }
    let mut to = cached(neigh, conn.rev_hop);
    if is_stale(conn, cx, to.1) {
        to = find_client(conn, neigh, cx)?;
    }
    let mtu = mtu_towards(cx, to.1);
    if meta.ip_len > mtu {
        return Err(too_long(buf, mtu));
    }
    let nat = conn.method() == flag::NAT;
    pass(buf, meta, nat.then(|| Rewrite::reply(conn)));
    Ok(to)
}

/// A next hop that a connection remembers, and what is known of it now.
#[inline(always)]
fn cached(neigh: &NeighTable, hop: u32) -> (Hop, Reach) {
    let hop = Hop::from_bits(hop);
    (hop, neigh.reach(hop))
}

/// Must a remembered next hop be looked up again? Routes may have changed, or the neighbour's place been given away.
#[inline(always)]
fn is_stale(conn: &Record, cx: &Cx<'_>, reach: Reach) -> bool {
    conn.route_gen != cx.snap.net.generation || reach == Reach::Gone
}

/// The next hop towards the connection's server: its destination remembers what an earlier connection found, so
/// that a new one costs no route look-up.
#[cold]
#[inline(never)]
fn find_server(
    conn: &mut Record,
    dest: &DestState,
    neigh: &NeighTable,
    cx: &Cx<'_>,
) -> Result<(Hop, Reach), Refusal> {
    let net = &cx.snap.net;
    let noted = dest.hop(net.generation, conn.method());
    if let Some(hop) = noted
        && let reach = neigh.reach_used(hop, cx.now_ns)
        && reach != Reach::Gone
    {
        remember(conn, net.generation, Direction::Request, hop);
        return Ok((hop, reach));
    }
    let server = Ipv4Addr::from_bits(conn.tuple().daddr);
    let next = match conn.method() {
        flag::NAT => net.route(server),
        // Direct routing hands the packet to the server itself, never to a router.
        _ => net.route_on_link(server),
    };
    let to = neighbour(neigh, cx, next)?;
    dest.note_hop(net.generation, conn.method(), to.0);
    remember(conn, net.generation, Direction::Request, to.0);
    Ok(to)
}

/// The next hop towards the connection's client, by its route.
#[cold]
fn find_client(conn: &mut Record, neigh: &NeighTable, cx: &Cx<'_>) -> Result<(Hop, Reach), Refusal> {
    let net = &cx.snap.net;
    let to = neighbour(neigh, cx, net.route(Ipv4Addr::from_bits(conn.tuple().caddr)))?;
    remember(conn, net.generation, Direction::Reply, to.0);
    Ok(to)
}

/// The neighbour behind a route.
fn neighbour(neigh: &NeighTable, cx: &Cx<'_>, next: Option<NextHop>) -> Result<(Hop, Reach), Refusal> {
    let next = next.ok_or(Refusal::answered(DropReason::NoRoute, Problem::HostUnreachable))?;
    let hop = neigh.find(next.port, next.addr, cx.now_ns);
    let hop = hop.ok_or(Refusal::silent(DropReason::NeighFull))?;
    Ok((hop, neigh.reach(hop)))
}

fn remember(conn: &mut Record, generation: u16, direction: Direction, hop: Hop) {
    if conn.route_gen != generation {
        conn.route_gen = generation;
        (conn.fwd_hop, conn.rev_hop) = (Hop::NONE.bits(), Hop::NONE.bits());
    }
    match direction {
        Direction::Request => conn.fwd_hop = hop.bits(),
        Direction::Reply => conn.rev_hop = hop.bits(),
    }
}

/// MTU of the link to `reach`, bytes.
#[inline(always)]
fn mtu_towards(cx: &Cx<'_>, reach: Reach) -> u16 {
    let port = match reach {
        Reach::Ready { port, .. } | Reach::Waiting { port } | Reach::Failed { port } => port,
        Reach::Gone => return u16::MAX,
    };
    cx.snap.net.ports.get(usize::from(port)).map_or(u16::MAX, |p| p.facts.mtu)
}

/// Too long for the next link: with DF the sender is told what would fit.
#[cold]
fn too_long<B: PacketBuf>(buf: &B, mtu: u16) -> Refusal {
    let header = buf.data().get(ethernet::LEN..).and_then(ipv4::Header::at);
    match header.is_some_and(|ip| ip.fragment() & ipv4::DF != 0) {
        true => Refusal::answered(DropReason::Mtu, Problem::FragmentationNeeded { mtu }),
        false => Refusal::silent(DropReason::Mtu),
    }
}

/// A change of one endpoint, with the checksum deltas of its address and of address and port (RFC 1624).
#[derive(Clone, Copy)]
struct Rewrite {
    end: End,
    addr: u32,
    port: u16,
    l3_delta: u16,
    l4_delta: u16,
}

impl Rewrite {
    #[inline(always)]
    fn request(conn: &Record) -> Self {
        let tuple = conn.tuple();
        let (l3_delta, l4_delta) = (conn.l3_delta, conn.l4_delta);
        Self { end: End::Destination, addr: tuple.daddr, port: tuple.dport, l3_delta, l4_delta }
    }

    /// The reply undoes the request's change: its deltas are the complements.
    #[inline(always)]
    fn reply(conn: &Record) -> Self {
        let tuple = conn.tuple();
        let (l3_delta, l4_delta) = (!conn.l3_delta, !conn.l4_delta);
        Self { end: End::Source, addr: tuple.vaddr, port: tuple.vport, l3_delta, l4_delta }
    }
}

/// Undoes a NAT rewrite of a request's destination, for an error message that its client understands. The TTL stays.
pub(super) fn restore<B: PacketBuf>(buf: &mut B, meta: &Meta, vaddr: u32, vport: u16) {
    let l3_delta = checksum::delta_u32(meta.key.dst, vaddr);
    let l4_delta = checksum::combine(l3_delta, checksum::delta_u16(meta.key.dport, vport));
    let rewrite = Rewrite { end: End::Destination, addr: vaddr, port: vport, l3_delta, l4_delta };
    apply(buf, meta, Some(rewrite), false);
}

/// Takes a packet that may go across the router: TTL one less, rewritten, without Ethernet padding.
#[inline(always)]
fn pass<B: PacketBuf>(buf: &mut B, meta: &Meta, rewrite: Option<Rewrite>) {
    apply(buf, meta, rewrite, true);
    buf.set_len(ethernet::LEN + usize::from(meta.ip_len));
}

/// Changes the headers in place. A wrong checksum stays wrong by the same amount.
#[inline(always)]
fn apply<B: PacketBuf>(buf: &mut B, meta: &Meta, rewrite: Option<Rewrite>, hop: bool) {
    let l4_at = usize::from(meta.l4);
    let Some((head, l4)) = buf.data_mut().split_at_mut_checked(l4_at) else { return };
    let Some(mut ip) = head.get_mut(ethernet::LEN..).and_then(ipv4::Header::at_mut) else { return };
    let mut check = ip.check();
    if hop {
        ip.set_ttl(meta.ttl.wrapping_sub(1));
        check = checksum::apply(check, TTL_DECREMENT);
    }
    if let Some(change) = rewrite {
        check = checksum::apply(check, change.l3_delta);
        let port_at = match change.end {
            End::Source => {
                ip.set_src(change.addr);
                0
            }
            End::Destination => {
                ip.set_dst(change.addr);
                2
            }
        };
        if let Some(port) = l4.get_mut(port_at..port_at + 2) {
            port.copy_from_slice(&change.port.to_be_bytes());
        }
        if meta.key.proto == ipv4::TCP {
            if let Some(field) = l4.get_mut(TCP_CHECK..TCP_CHECK + 2).and_then(|f| f.first_chunk_mut()) {
                *field = checksum::apply(u16::from_be_bytes(*field), change.l4_delta).to_be_bytes();
            }
        } else {
            udp_check(
                ip.src(),
                ip.dst(),
                l4,
                usize::from(meta.ip_len) + ethernet::LEN - l4_at,
                change.l4_delta,
            );
        }
    }
    ip.set_check(check);
}

/// Corrects a UDP checksum. A datagram that came without one leaves with a full one, as from the kernel; if its length
/// field lies it keeps "none": there is nothing true to sum over.
#[inline(always)]
fn udp_check(src: u32, dst: u32, l4: &mut [u8], len: usize, delta: u16) {
    let Some(field) = l4.get_mut(UDP_CHECK..UDP_CHECK + 2).and_then(|f| f.first_chunk_mut()) else { return };
    let check = u16::from_be_bytes(*field);
    if check == 0 {
        let _ = udp::fill_check(src, dst, l4.get_mut(..len).unwrap_or_default());
    } else {
        *field = checksum::apply_udp(check, delta).to_be_bytes();
    }
}
