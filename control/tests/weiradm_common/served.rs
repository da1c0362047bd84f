//! The world behind a control socket, for programs in processes of their own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::api::access::Access;
use control::api::codec::{Incoming, Refusal, Request};
use control::api::handler::{Handler, Outcome, Peer};
use control::api::server::Server;
use control::ipvs::proc::{self, Conn};
use control::ipvs::{Answer, Stats, Store};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::weiradm_common::World;

/// How often the server looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// A server of a world, on a thread of its own.
pub struct Served {
    world: Arc<Mutex<World>>,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Listens on the path.
    pub fn start(path: &Path, world: World) -> Served {
        let world = Arc::new(Mutex::new(world));
        let stop = Arc::new(AtomicBool::new(false));
        let (mut handler, stopping, at) = (Shared(world.clone()), stop.clone(), path.to_owned());
        let (opened, is_open) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = Server::open(&at, Access::default()).unwrap();
            opened.send(()).unwrap();
            while !stopping.load(Ordering::Relaxed) {
                let now = Instant::now();
                let wait =
                    server.deadline(now).map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
                let mut fds = server.interests();
                rustix::event::poll(&mut fds, Some(&Timespec::try_from(wait).unwrap())).unwrap();
                let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
                server.serve(&ready, Instant::now(), &mut handler);
            }
        });
        is_open.recv().unwrap();
        Served { world, path: path.to_owned(), stop, thread: Some(thread) }
    }

    /// The world, while nobody is served.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server failed");
    }
}

struct Shared(Arc<Mutex<World>>);

impl Handler for Shared {
    fn ipvs(&mut self, messages: &[Incoming], _: Peer) -> Vec<Answer> {
        let world = &mut *self.0.lock().unwrap();
        let answer = |message: &Incoming| {
            world.note(message);
            match world.refusal_of(message) {
                Some(errno) => Answer::refused(message, errno),
                None => world.server.answer(message, world.rights),
            }
        };
        messages.iter().map(answer).collect()
    }

    fn answer(&mut self, request: Request, _: Peer) -> Result<Outcome, Refusal> {
        let world = &mut *self.0.lock().unwrap();
        let refused = |errno: Errno| Refusal::new(errno, errno.to_string());
        Ok(match request {
            Request::OptionSet { number, data } => {
                world.server.set_option(number, &data, world.rights).map_err(refused)?;
                Outcome::Done
            }
            Request::OptionGet { number, length, data } => {
                let answer = world.server.option(number, length as usize, &data, world.rights);
                Outcome::Text(answer.map_err(refused)?)
            }
            Request::TextOpen { name, write: false } => Outcome::Text(text(world, &name)?.into_bytes()),
            _ => return Err(refused(Errno::OPNOTSUPP)),
        })
    }

    fn write_knob(&mut self, _: &str, _: &str, _: Peer) {}
}

fn text(world: &World, name: &str) -> Result<String, Refusal> {
    let store = world.server.store();
    let connections = |line: fn(&Conn<'_>) -> String| {
        let conn = |entry: &control::weiradm::Entry| {
            line(&Conn {
                protocol: &entry.protocol,
                client: entry.client,
                service: entry.service_address,
                dest: entry.dest,
                state: &entry.state,
                expires_seconds: entry.expires_seconds,
                engine: entry.engine.as_ref().map(|(name, data)| (name.as_str(), data.as_str())),
            })
        };
        world.connections.iter().map(conn).collect::<String>()
    };
    let none = Stats::default();
    Ok(match name {
        "net/ip_vs" => {
            let services = store.services().map(|service| proc::service(&service, store.dests(&service.key)));
            proc::head(&store.info()) + &services.collect::<String>()
        }
        "net/ip_vs_conn" => proc::CONN_HEAD.to_owned() + &connections(proc::conn),
        "net/ip_vs_conn_sync" => proc::CONN_SYNC_HEAD.to_owned() + &connections(proc::conn_sync),
        "net/ip_vs_stats" => proc::stats(&none),
        "net/ip_vs_stats_percpu" => proc::stats_percpu(&[(0, none)], &none),
        "net/ip_vs_app" => proc::APP.to_owned(),
        _ => return Err(Refusal::new(Errno::NOENT, "no such file")),
    })
}
