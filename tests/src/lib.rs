//! Fixtures and oracles that the test binaries share.
//!
//! [`packets`] builds frames, [`check`] decodes them again without sharing code with the balancer, [`case`] is the
//! table form of a test, [`golden`] holds packets byte for byte, [`kernel`] reads what was recorded from kernel IPVS
//! (`data/kernel`), [`est`] runs estimator engines on real clocks, [`topo`] is one worker between in-memory ports and
//! [`mesh`] several, [`mutate`] spoils valid traffic for it,
//! [`oracle`] holds slow models, [`netns`] makes test networks out of namespaces.

#![forbid(unsafe_code)]

pub mod case;
pub mod check;
pub mod est;
pub mod golden;
pub mod kernel;
pub mod mesh;
pub mod mutate;
pub mod netns;
pub mod oracle;
pub mod packets;
pub mod topo;
