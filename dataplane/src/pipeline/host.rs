//! Host: what a box does besides balancing, because clients and routers count on it. ARP, echo, and answers to
//! packets for our addresses that no service or connection takes.

use std::net::Ipv4Addr;

use config::Unmatched;

use crate::counters::bump;
use crate::io::{PacketBuf, PortIndex};
use crate::pipeline::answer::Refusal;
use crate::pipeline::parse::Meta;
use crate::pipeline::{Core, Cx};
use crate::verdict::{DropReason, Verdict};
use crate::wire::arp::{self, Operation};
use crate::wire::ethernet::{self, Mac};
use crate::wire::icmp::Problem;
use crate::wire::ipv4;

impl<B: PacketBuf> Core<B> {
    /// ICMP: echo requests for our addresses are answered, everything else is nobody's.
    #[inline(never)]
    pub(crate) fn icmp(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta) -> Verdict {
        if !is_ours(cx, meta.dst()) {
            return self.drop(DropReason::Transit);
        }
        if is_ours(cx, meta.src()) {
            return self.drop(DropReason::LocalBoundary);
        }
        self.echo(cx, buf)
    }

    /// Another protocol than TCP, UDP or ICMP.
    pub(crate) fn other(&self, cx: &Cx<'_>, meta: &Meta) -> Verdict {
        self.drop(if is_ours(cx, meta.dst()) { DropReason::UnmatchedDrop } else { DropReason::Transit })
    }

    /// For one of our addresses, but no connection or service takes it: answered as a host answers on a closed port.
    #[inline(never)]
    pub(super) fn unmatched(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, policy: Unmatched) -> Verdict {
        if policy != Unmatched::Reset {
            return self.drop(DropReason::UnmatchedDrop);
        }
        if meta.key.proto == ipv4::UDP {
            let refusal = Refusal::answered(DropReason::UnmatchedReset, Problem::PortUnreachable);
            return self.reject(cx, buf, refusal, None);
        }
        self.reset(cx, buf)
    }

    /// ARP: learns, and answers for our addresses with the MAC address of the port that was asked.
    #[inline(never)]
    pub(crate) fn arp(&mut self, cx: &Cx<'_>, buf: &mut B) -> Verdict {
        let payload = buf.data().get(ethernet::LEN..).unwrap_or_default();
        let Some(message) = arp::Repr::parse(payload) else { return self.drop(DropReason::L3Malformed) };
        let (sender, target) =
            (Ipv4Addr::from_bits(message.sender_ip), Ipv4Addr::from_bits(message.target_ip));
        let ports = &cx.snap.net.ports;
        let mac = Mac(ports[usize::from(cx.port)].facts.mac);
        // Another port of ours may be on the same wire.
        let own = ports.iter().any(|port| message.sender_mac == Mac(port.facts.mac));
        if message.sender_mac.is_multicast() || own {
            return self.drop(DropReason::ArpIgnored);
        }
        if answers_for(cx, sender) {
            bump(&self.stats.addr_conflict, 1);
            return self.drop(DropReason::ArpIgnored);
        }
        let for_us = answers_for(cx, target);
        self.learn(cx, sender, message.sender_mac, for_us);
        match message.operation {
            _ if !for_us => self.drop(DropReason::ArpIgnored),
            Operation::Reply => self.consume(),
            Operation::Request => {
                self.consume();
                self.arp_frame(buf, cx.port, arp::Repr::reply_to(&message, mac), message.sender_mac)
            }
        }
    }

    /// Takes in a sender's MAC address; a new neighbour only if it spoke to us and is on-link here. What waits for it
    /// leaves after the burst, so that answers of many neighbours in one do not fill the transmit queue.
    fn learn(&mut self, cx: &Cx<'_>, sender: Ipv4Addr, mac: Mac, for_us: bool) {
        let on_link = cx.snap.net.route_on_link(sender).is_some_and(|hop| hop.port == cx.port);
        if !on_link || sender.is_unspecified() {
            return;
        }
        self.neigh.learn(cx.port, sender, mac, for_us, cx.now_ns);
    }

    /// Makes `buf` an ARP request on `port` for `addr`; by unicast to `to` if that is known.
    pub(crate) fn ask(
        &mut self,
        cx: &Cx<'_>,
        buf: &mut B,
        port: PortIndex,
        addr: Ipv4Addr,
        to: Option<Mac>,
    ) -> Verdict {
        let mac = Mac(cx.snap.net.ports[usize::from(port)].facts.mac);
        let from = cx.snap.net.source(port, addr).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let request = arp::Repr::request(mac, from.to_bits(), addr.to_bits());
        self.arp_frame(buf, port, request, to.unwrap_or(Mac::BROADCAST))
    }

    /// Makes `buf` a gratuitous ARP on `port` for `addr`.
    pub(crate) fn announce(&mut self, cx: &Cx<'_>, buf: &mut B, port: PortIndex, addr: Ipv4Addr) -> Verdict {
        let mac = Mac(cx.snap.net.ports[usize::from(port)].facts.mac);
        self.arp_frame(buf, port, arp::Repr::gratuitous(mac, addr.to_bits()), Mac::BROADCAST)
    }

    fn arp_frame(&mut self, buf: &mut B, port: PortIndex, message: arp::Repr, to: Mac) -> Verdict {
        if buf.set_len(arp::FRAME_LEN)
            && let Some(frame) = buf.data_mut().first_chunk_mut()
        {
            message.emit_frame(to, frame);
            return self.send_own(port);
        }
        Verdict::Free
    }
}

/// A port's own address or a virtual one.
fn is_ours(cx: &Cx<'_>, addr: Ipv4Addr) -> bool {
    cx.snap.net.local(addr).is_some() || cx.snap.services.vip(addr).is_some()
}

/// An address that ARP on the packet's port is answered for: announced virtual addresses, and the port's own.
fn answers_for(cx: &Cx<'_>, addr: Ipv4Addr) -> bool {
    cx.snap.net.local(addr) == Some(cx.port) || cx.snap.services.vip(addr).is_some_and(|v| v.is_announced())
}
