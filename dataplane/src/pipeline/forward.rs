//! Forward: next hop, TTL, MTU, and the rewrite of the forwarding method.

use std::net::Ipv4Addr;

use crate::conn::{Direction, Record, flag};
use crate::io::PacketBuf;
use crate::neigh::{Hop, NeighTable, Reach};
use crate::pipeline::answer::Refusal;
use crate::pipeline::parse::Meta;
use crate::pipeline::Cx;
use crate::verdict::DropReason;
use crate::wire::checksum::{self, TTL_DECREMENT};
use crate::wire::icmp::Problem;
use crate::wire::{ethernet, ipv4, tcp, udp};

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
    neigh: &NeighTable,
    cx: &Cx<'_>,
    buf: &mut B,
    meta: &Meta,
) -> Result<(Hop, Reach), Refusal> {
    let to = next_hop(conn, neigh, cx, Direction::Request)?;
    pass_ttl(buf)?;
    fits(cx, buf, meta, to.1)?;
    if conn.method() == flag::NAT {
        let tuple = conn.tuple();
        let deltas = (conn.l3_delta, conn.l4_delta);
        rewrite(buf, meta, End::Destination, tuple.daddr, tuple.dport, deltas);
    }
    buf.set_len(ethernet::LEN + usize::from(meta.ip_len));
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
    if header(buf).is_none_or(|ip| ip.ttl() <= 1) {
        return Err(Refusal::answered(DropReason::Ttl, Problem::TtlExceeded));
    }
    let to = next_hop(conn, neigh, cx, Direction::Reply)?;
    fits(cx, buf, meta, to.1)?;
    pass_ttl(buf)?;
    if conn.method() == flag::NAT {
        let tuple = conn.tuple();
        // The reply undoes the request's change: its deltas are the complements.
        rewrite(buf, meta, End::Source, tuple.vaddr, tuple.vport, (!conn.l3_delta, !conn.l4_delta));
    }
    buf.set_len(ethernet::LEN + usize::from(meta.ip_len));
    Ok(to)
}

/// The connection's next hop in that direction: cached in its record while routes and neighbour stay.
#[inline(always)]
fn next_hop(
    conn: &mut Record,
    neigh: &NeighTable,
    cx: &Cx<'_>,
    direction: Direction,
) -> Result<(Hop, Reach), Refusal> {
    if conn.route_gen == cx.snap.net.generation {
        let hop = Hop::from_bits(match direction {
            Direction::Request => conn.fwd_hop,
            Direction::Reply => conn.rev_hop,
        });
        let reach = neigh.reach(hop);
        if reach != Reach::Gone {
            return Ok((hop, reach));
        }
    }
    find_next_hop(conn, neigh, cx, direction)
}

/// Looks the route up and remembers the neighbour.
#[cold]
fn find_next_hop(
    conn: &mut Record,
    neigh: &NeighTable,
    cx: &Cx<'_>,
    direction: Direction,
) -> Result<(Hop, Reach), Refusal> {
    let net = &cx.snap.net;
    let tuple = conn.tuple();
    let next = match direction {
        Direction::Request if conn.method() == flag::NAT => net.route(Ipv4Addr::from_bits(tuple.daddr)),
        // Direct routing hands the packet to the server itself, never to a router.
        Direction::Request => net.route_on_link(Ipv4Addr::from_bits(tuple.daddr)),
        Direction::Reply => net.route(Ipv4Addr::from_bits(tuple.caddr)),
    };
    let next = next.ok_or(Refusal::answered(DropReason::NoRoute, Problem::HostUnreachable))?;
    let hop = neigh.find(next.port, next.addr, cx.now_ns);
    let hop = hop.ok_or(Refusal::silent(DropReason::NeighFull))?;
    if conn.route_gen != net.generation {
        conn.route_gen = net.generation;
        (conn.fwd_hop, conn.rev_hop) = (Hop::NONE.bits(), Hop::NONE.bits());
    }
    match direction {
        Direction::Request => conn.fwd_hop = hop.bits(),
        Direction::Reply => conn.rev_hop = hop.bits(),
    }
    Ok((hop, neigh.reach(hop)))
}

/// Undoes a NAT rewrite of a request's destination, for an error message that its client understands.
pub(super) fn restore<B: PacketBuf>(buf: &mut B, meta: &Meta, vaddr: u32, vport: u16) {
    let l3 = checksum::delta_u32(meta.key.dst, vaddr);
    let l4 = checksum::combine(l3, checksum::delta_u16(meta.key.dport, vport));
    rewrite(buf, meta, End::Destination, vaddr, vport, (l3, l4));
}

/// Takes one from the TTL, or refuses.
#[inline(always)]
fn pass_ttl<B: PacketBuf>(buf: &mut B) -> Result<(), Refusal> {
    let frame = buf.data_mut();
    let Some(packet) = frame.get_mut(ethernet::LEN..) else { return Ok(()) };
    let Some(mut ip) = ipv4::Header::at_mut(packet) else { return Ok(()) };
    let ttl = ip.ttl();
    if ttl <= 1 {
        return Err(Refusal::answered(DropReason::Ttl, Problem::TtlExceeded));
    }
    ip.set_ttl(ttl - 1);
    let check = checksum::apply(ip.check(), TTL_DECREMENT);
    ip.set_check(check);
    Ok(())
}

/// Whether the packet fits the link to `reach`; too long with DF gets fragmentation needed.
#[inline(always)]
fn fits<B: PacketBuf>(cx: &Cx<'_>, buf: &B, meta: &Meta, reach: Reach) -> Result<(), Refusal> {
    let port = match reach {
        Reach::Ready { port, .. } | Reach::Waiting { port } | Reach::Failed { port } => port,
        Reach::Gone => return Ok(()),
    };
    let mtu = cx.snap.net.ports.get(usize::from(port)).map_or(u16::MAX, |p| p.facts.mtu);
    if meta.ip_len <= mtu {
        return Ok(());
    }
    let df = header(buf).is_some_and(|ip| ip.fragment() & ipv4::DF != 0);
    Err(match df {
        true => Refusal::answered(DropReason::Mtu, Problem::FragmentationNeeded { mtu }),
        false => Refusal::silent(DropReason::Mtu),
    })
}

fn header<B: PacketBuf>(buf: &B) -> Option<ipv4::Header<&[u8; ipv4::LEN]>> {
    ipv4::Header::at(buf.data().get(ethernet::LEN..)?)
}

/// Writes one endpoint's address and port and corrects both checksums by `deltas` (RFC 1624): a wrong checksum stays
/// wrong by the same amount. A UDP datagram that came without a checksum leaves with a full one, as from the kernel.
#[inline(always)]
fn rewrite<B: PacketBuf>(buf: &mut B, meta: &Meta, end: End, addr: u32, port: u16, deltas: (u16, u16)) {
    let frame = buf.data_mut();
    let l4_at = usize::from(meta.l4);
    let Some((head, l4)) = frame.split_at_mut_checked(l4_at) else { return };
    let Some(mut ip) = head.get_mut(ethernet::LEN..).and_then(ipv4::Header::at_mut) else { return };
    let check = checksum::apply(ip.check(), deltas.0);
    ip.set_check(check);
    let port_at = match end {
        End::Source => {
            ip.set_src(addr);
            0
        }
        End::Destination => {
            ip.set_dst(addr);
            2
        }
    };
    let (src, dst) = (ip.src(), ip.dst());
    if meta.key.proto == ipv4::TCP {
        let Some(l4) = l4.first_chunk_mut::<{ tcp::LEN }>() else { return };
        l4[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
        let check = u16::from_be_bytes([l4[TCP_CHECK], l4[TCP_CHECK + 1]]);
        l4[TCP_CHECK..TCP_CHECK + 2].copy_from_slice(&checksum::apply(check, deltas.1).to_be_bytes());
        return;
    }
    let Some(fixed) = l4.first_chunk_mut::<{ udp::LEN }>() else { return };
    fixed[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
    let check = u16::from_be_bytes([fixed[UDP_CHECK], fixed[UDP_CHECK + 1]]);
    if check == 0 {
        let end = usize::from(meta.ip_len) + ethernet::LEN - l4_at;
        fill_udp_check(src, dst, l4.get_mut(..end).unwrap_or_default());
    } else {
        fixed[UDP_CHECK..UDP_CHECK + 2].copy_from_slice(&checksum::apply_udp(check, deltas.1).to_be_bytes());
    }
}

#[cold]
fn fill_udp_check(src: u32, dst: u32, datagram: &mut [u8]) {
    // A datagram whose length field lies keeps "no checksum": there is nothing true to sum over.
    let _ = udp::fill_check(src, dst, datagram);
}
