//! Golden packets: frames that go in and must come out, byte for byte, typed in hex.
//!
//! Written down once, checked against an encoder that reproduces frames recorded from kernel 6.12 IPVS. They pin the
//! whole packet: checksums, TTL, quoting, and what is left alone. Network and addresses: [`crate::packets`].

use crate::case::{Mask, Out, Step};

/// Which service a golden packet meets. The destination is the server of the test network, weight 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// TCP service on port 80, NAT to port 8080.
    TcpNat,
    /// TCP service on port 80, direct routing.
    TcpDr,
    /// UDP service on port 53, NAT to port 53.
    UdpNat,
    /// TCP service on port 80 without destinations.
    TcpEmpty,
}

/// One golden exchange: the steps run in order through one worker.
pub struct Golden {
    /// Short name.
    pub name: &'static str,
    /// What it shows.
    pub what: &'static str,
    /// Service it meets.
    pub rules: Rules,
    /// In and out.
    pub steps: &'static [Row],
}

/// One packet in, at most one out.
pub struct Row {
    /// What happens.
    pub what: &'static str,
    /// Port and frame, hex.
    pub input: (usize, &'static str),
    /// Port and frame, hex; `None` for silence.
    pub output: Option<(usize, &'static str)>,
    /// Whether the identification of the output is of our own choice.
    pub own_id: bool,
}

/// Client to virtual address, SYN: gateway to port 0.
const SYN_IN: &str = "0200000000010200000000fe0800 4500002c123440004006c24fc633640acb00710a \
                      9c40005011111111000000006002ffff732b0000020405b4";
/// The same SYN under NAT: port 1 to the server, port 8080.
const SYN_NAT: &str = "02000000010a0200000001010800 4500002c123440003f06f559c633640a0a000001 \
                       9c401f9011111111000000006002ffff85f50000020405b4";

/// All of them.
pub const GOLDEN: &[Golden] = &[
    Golden {
        name: "nat-request",
        what: "NAT rewrites destination and port, takes one from the TTL, corrects both checks",
        rules: Rules::TcpNat,
        steps: &[Row { what: "SYN", input: (0, SYN_IN), output: Some((1, SYN_NAT)), own_id: false }],
    },
    Golden {
        name: "nat-reply",
        what: "the server's SYN+ACK leaves from the virtual address and port",
        rules: Rules::TcpNat,
        steps: &[
            Row { what: "SYN", input: (0, SYN_IN), output: Some((1, SYN_NAT)), own_id: false },
            Row {
                what: "SYN+ACK",
                input: (
                    1,
                    "02000000010102000000010a0800 4500002c000040004006068e0a000001c633640a \
                     1f909c40222222221111111260127210cf8f0000020405b4",
                ),
                output: Some((
                    0,
                    "0200000000fe0200000000010800 4500002c000040003f06d583cb00710ac633640a \
                     00509c40222222221111111260127210bcc50000020405b4",
                )),
                own_id: false,
            },
        ],
    },
    Golden {
        name: "dr-request",
        what: "direct routing changes MAC addresses and TTL only",
        rules: Rules::TcpDr,
        steps: &[Row {
            what: "SYN",
            input: (0, SYN_IN),
            output: Some((
                1,
                "02000000010a0200000001010800 4500002c123440003f06c34fc633640acb00710a \
                 9c40005011111111000000006002ffff732b0000020405b4",
            )),
            own_id: false,
        }],
    },
    Golden {
        name: "nat-udp-without-checksum",
        what: "NAT gives a datagram without a checksum a real one",
        rules: Rules::UdpNat,
        steps: &[Row {
            what: "hello",
            input: (
                0,
                "0200000000010200000000fe0800 45000021000700004011147dc633640acb00710a \
                 9c400035000d000068656c6c6f",
            ),
            output: Some((
                1,
                "02000000010a0200000001010800 45000021000700003f114787c633640a0a000001 \
                 9c400035000deb4d68656c6c6f",
            )),
            own_id: false,
        }],
    },
    Golden {
        name: "ttl-exceeded",
        what: "TTL 1 is answered with time exceeded from the virtual address, quoting the packet as it came",
        rules: Rules::TcpNat,
        steps: &[Row {
            what: "SYN with TTL 1",
            input: (
                0,
                "0200000000010200000000fe0800 4500002c1234400001060150c633640acb00710a \
                 9c40005011111111000000006002ffff732b0000020405b4",
            ),
            output: Some((
                0,
                "0200000000fe0200000000010800 45c0004800000000400113adcb00710ac633640a 0b005b6700000000 \
                 4500002c1234400001060150c633640acb00710a \
                 9c40005011111111000000006002ffff732b0000020405b4",
            )),
            own_id: true,
        }],
    },
    Golden {
        name: "no-destination",
        what: "a service without destinations answers port unreachable, for TCP as well",
        rules: Rules::TcpEmpty,
        steps: &[Row {
            what: "SYN",
            input: (0, SYN_IN),
            output: Some((
                0,
                "0200000000fe0200000000010800 45c0004800000000400113adcb00710ac633640a 0303636400000000 \
                 4500002c123440004006c24fc633640acb00710a \
                 9c40005011111111000000006002ffff732b0000020405b4",
            )),
            own_id: true,
        }],
    },
];

impl Golden {
    /// The rows as steps of a [`crate::case::Case`].
    pub fn steps(&self) -> Vec<Step> {
        self.steps
            .iter()
            .map(|row| Step {
                what: row.what,
                port: row.input.0,
                frame: hex(row.input.1),
                expect: row.output.iter().map(|(port, text)| Out { port: *port, frame: hex(text) }).collect(),
                mask: if row.own_id { Mask::IpId } else { Mask::Exact },
            })
            .collect()
    }
}

/// Bytes of a hex text; white space is skipped. Panics on anything else: the table is wrong.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("not hex: {c:?} in {text}")) as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "odd number of digits in {text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    /// Typing errors in the table show as bad lengths or checksums.
    #[test]
    fn the_table_itself_is_valid() {
        for golden in GOLDEN {
            for step in golden.steps() {
                check::valid(&step.frame);
                for out in &step.expect {
                    check::valid(&out.frame);
                }
            }
        }
    }
}
