//! Every recorded run of ipvsadm against kernel 6.12 (`data/kernel/control-plane.json`), repeated with `weiradm`:
//! output, messages and exit status. What differs on purpose stands in `data/differences.txt`.

#[path = "weiradm_common/differences.rs"]
mod differences;
#[path = "weiradm_common/kernel.rs"]
mod kernel;
mod weiradm_common;

use std::cell::RefCell;
use std::rc::Rc;

use control::ipvs::Rights;
use kernel::Player;
use weiradm_common::{Outcome, World, ipvsadm, program, words};

/// Interfaces of the recorded machine, with their MTU.
const INTERFACES: &[(&str, u32)] = &[("lo", 65536)];
/// Recorded commands that are ipvsadm's.
const COMPARED: usize = 299;

#[test]
fn every_command_ends_as_with_the_kernel() {
    assert_eq!(kernel::repeat(&mut InMemory(World::new(INTERFACES))), COMPARED);
}

struct InMemory(Rc<RefCell<World>>);

impl Player for InMemory {
    fn begin(&mut self) {
        self.0 = World::new(INTERFACES);
    }

    fn not_compared(&self) -> &[&str] {
        &[]
    }

    fn ipvsadm(&mut self, arguments: &str, input: &str) -> Outcome {
        ipvsadm(&self.0, &words(arguments), input)
    }

    fn ipvsadm_without_rights(&mut self, arguments: &str) -> Option<Outcome> {
        self.0.borrow_mut().rights = Rights::None;
        Some(self.ipvsadm(arguments, ""))
    }
}
