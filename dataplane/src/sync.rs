//! Where threads meet around estimators: their lock, and points at which another thread may come first.
//!
//! For use [`Mutex`] is the standard library's and [`point`] is nothing. In unit tests both let the model checker (shuttle)
//! choose who goes on, inside of `model::check`; everywhere else they are what they are for use.

#[cfg(test)]
pub(crate) use model::{Mutex, point};
#[cfg(not(test))]
pub(crate) use std::sync::Mutex;

/// A step of a thread that others may see the world before. Nothing, outside of models.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

#[cfg(test)]
pub(crate) mod model {
    use std::cell::Cell;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{LockResult, MutexGuard, TryLockError};

    thread_local! {
        /// A model runs on this thread: all of its threads do.
        static RUNNING: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `body` once for each of `orders` orders of its threads' steps, which are drawn from a fixed seed; a failure prints
    /// the order. Threads of the model are shuttle's.
    pub(crate) fn check(orders: usize, body: impl Fn() + Send + Sync + 'static) {
        let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(0x5eed, orders);
        RUNNING.set(true);
        shuttle::Runner::new(scheduler, shuttle::Config::default()).run(body);
        RUNNING.set(false);
    }

    /// Lets another thread of the model go first, or not.
    #[inline]
    pub(crate) fn point() {
        if RUNNING.get() {
            // Any access to one of its atomics is a step.
            shuttle::sync::atomic::AtomicBool::new(false).load(Relaxed);
        }
    }

    /// A lock whose takers take turns as the model wants.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            if !RUNNING.get() {
                return self.0.lock();
            }
            point();
            loop {
                match self.0.try_lock() {
                    Ok(guard) => return Ok(guard),
                    Err(TryLockError::Poisoned(error)) => return Err(error),
                    Err(TryLockError::WouldBlock) => shuttle::thread::yield_now(),
                }
            }
        }
    }
}
