//! Keys of ports, routes and neighbours.

use super::row::{Key, Kind::*, Preset, Table};

#[rustfmt::skip]
pub(super) const PORT: Table = Table {
    name: "port", list: true,
    sentence: "One Ethernet device and our addresses on it.",
    keys: &[
        Key::new("name", Name, Preset::Required, "",
            "Our name for the port, in commands, logs and routes.",
            "Devices are renumbered; names are not."),
        Key::new("device", Text, Preset::Required, "",
            "PCI address like \"0000:3b:00.0\", or a virtual device like \"net_af_packet0,iface=eth1\".",
            "Taking a device from the machine unasked would cut it off."),
        Key::new("addresses", Interfaces, Preset::Empty, "",
            "Our addresses on this port with the length of their network.",
            "A port can forward frames between servers and clients only with an address to resolve them from."),
        Key::new("gateway", Addresses, Preset::Empty, "",
            "Router for all destinations without a more specific route.",
            "None: only networks on the wire and written routes are reached."),
        Key::new("mtu", Int(68, 9_600), Preset::Int(1_500), "bytes",
            "Largest IP packet sent; frames are 14 bytes longer, 18 with a VLAN tag.",
            "Ethernet's (RFC 894)."),
        Key::new("mac", Mac, Preset::Unset("the device's own"), "",
            "Ethernet address to set on the device.",
            "The device's own is known to the switch and unique."),
        Key::new("promiscuous", Bool, Preset::Bool(false), "",
            "Whether the device also receives frames for other Ethernet addresses.",
            "Only frames for us concern us."),
    ],
};

#[rustfmt::skip]
pub(super) const ROUTE: Table = Table {
    name: "route", list: true,
    sentence: "Where a prefix is, if neither on the network of a port address nor behind the gateway. The longest prefix wins.",
    keys: &[
        Key::new("prefix", Prefix, Preset::Required, "",
            "Destinations the route is for.",
            "A route for nothing is a mistake."),
        Key::new("via", Address, Preset::Unset("port says where"), "",
            "Router to send to; on the network of a port address.",
            "Exactly one of via and port has to be written."),
        Key::new("port", Name, Preset::Unset("via says where"), "",
            "Port on whose wire the destinations are themselves.",
            "Exactly one of via and port has to be written."),
    ],
};

#[rustfmt::skip]
pub(super) const NEIGHBOUR: Table = Table {
    name: "neighbour", list: true,
    sentence: "A host whose Ethernet address is written here and never asked for.",
    keys: &[
        Key::new("address", Address, Preset::Required, "",
            "Address of the host, on the network of a port.",
            "It is what the entry is for."),
        Key::new("mac", Mac, Preset::Required, "",
            "Ethernet address of the host.",
            "It is what the entry is for."),
        Key::new("port", Name, Preset::Unset("the port whose network has the address"), "",
            "Port the host is on.",
            "The address says which port it is."),
    ],
};
