//! Every recorded run of ipvsadm against kernel 6.12 (`data/kernel/control-plane.json`), repeated with `weiradm` and with
//! Debian's ipvsadm as it is under our preloaded library: output, messages and exit status. What differs on purpose
//! stands in `data/differences.txt`.

#[path = "weiradm_common/differences.rs"]
mod differences;
#[path = "weiradm_common/kernel.rs"]
mod kernel;
#[path = "weiradm_common/preloaded.rs"]
mod preloaded;
#[path = "weiradm_common/served.rs"]
mod served;
mod weiradm_common;

use std::cell::RefCell;
use std::rc::Rc;

use control::ipvs::Rights;
use kernel::Player;
use preloaded::Preloaded;
use served::Served;
use weiradm_common::{Outcome, World, ipvsadm, program, words};

/// Interfaces of the recorded machine, with their MTU.
const INTERFACES: &[(&str, u32)] = &[("lo", 65536)];
/// Recorded commands that are ipvsadm's.
const COMPARED: usize = 299;
/// Those that can be run as they are: files of the kernel too.
const COMPARED_PRELOADED: usize = 305;

#[test]
fn every_command_ends_as_with_the_kernel() {
    assert_eq!(kernel::repeat(&mut InMemory(World::new(INTERFACES)), "kernel/"), COMPARED);
}

#[test]
fn every_command_ends_as_with_the_kernel_with_unmodified_programs() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::start(&dir.path().join("weir.sock"), World::with(INTERFACES));
    let Some(program) = Preloaded::new(server.path()) else { return };
    assert_eq!(kernel::repeat(&mut Preload { server, program }, "shim/kernel/"), COMPARED_PRELOADED);
}

/// Debian's ipvsadm and cat.
struct Preload {
    server: Served,
    program: Preloaded,
}

impl Player for Preload {
    fn begin(&mut self) {
        *self.server.world() = World::with(INTERFACES);
    }

    fn not_compared(&self) -> &[&str] {
        &[]
    }

    fn ipvsadm(&mut self, arguments: &str, input: &str) -> Outcome {
        self.program.run("ipvsadm", arguments, input)
    }

    fn ipvsadm_without_rights(&mut self, arguments: &str) -> Option<Outcome> {
        self.server.world().rights = Rights::None;
        Some(self.ipvsadm(arguments, ""))
    }

    fn cat(&mut self, path: &str) -> Option<Outcome> {
        Some(self.program.run("cat", path, ""))
    }
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
