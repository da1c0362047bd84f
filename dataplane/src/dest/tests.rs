//! Thresholds: alone by the kernel's rule, and with two workers that bind and unbind at the same moment.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use super::*;

/// Collisions tried; a flag that is not of one word with the counts fails within some thousand.
const ROUNDS: usize = 30_000;

/// A destination with these thresholds.
fn slab(upper: u32, lower: u32) -> DestSlab {
    let slab = DestSlab::new(1).unwrap();
    slab[0].configure(1, upper, lower);
    slab
}

fn counts(dest: &DestState) -> (u32, u32, u32, bool) {
    (dest.active(), dest.inactive(), dest.total(), dest.is_overloaded())
}

/// Runs both in step, `ROUNDS` times, and `check` alone after each. They begin at the same moment, one of them sooner
/// or later by some nanoseconds, more each round, so that each moment of one meets each of the other.
fn collide(
    dest: &DestState,
    one: impl Fn(&DestState),
    other: impl Fn(&DestState) + Sync,
    mut check: impl FnMut(&DestState),
) {
    let arrived = AtomicUsize::new(0);
    let meet = |all: usize| {
        arrived.fetch_add(1, SeqCst);
        let mut spins = 0;
        while arrived.load(SeqCst) < all {
            spins += 1;
            // The other one may want this very CPU.
            if spins < 2000 { std::hint::spin_loop() } else { thread::yield_now() }
        }
    };
    let pause = |steps: usize| {
        (0..steps).for_each(|step| {
            std::hint::black_box(step);
        })
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                meet(6 * round + 2);
                pause(round % 64);
                other(dest);
                meet(6 * round + 4);
                meet(6 * round + 6);
            }
        });
        for round in 0..ROUNDS {
            meet(6 * round + 2);
            pause(32);
            one(dest);
            meet(6 * round + 4);
            check(dest);
            meet(6 * round + 6);
        }
    });
}

#[test]
fn counts_and_flags_do_not_touch_each_other() {
    let slab = slab(3, 0);
    let dest = &slab[0];
    dest.set_available(true);
    (0..3).for_each(|_| dest.bind());
    assert_eq!(counts(dest), (0, 3, 3, true));
    (0..3).for_each(|_| dest.shift(true));
    assert_eq!((counts(dest), dest.overhead()), ((3, 0, 3, true), 3 * 256));
    dest.shift(false);
    assert_eq!((counts(dest), dest.overhead(), dest.is_available()), ((2, 1, 3, true), 2 * 256 + 1, true));
    dest.unbind(false);
    assert_eq!(counts(dest), (2, 0, 2, false));
    dest.set_available(false);
    dest.unbind(true);
    assert_eq!((counts(dest), dest.is_available()), ((1, 0, 1, false), false));
    dest.reset();
    assert_eq!(counts(dest), (0, 0, 0, false));
}

/// (upper, lower, connections bound, connections left when the overload ends).
#[test]
fn an_overload_ends_by_the_kernels_rule() {
    for (upper, lower, bound, left) in [(4, 0, 4, 2), (8, 0, 8, 5), (4, 4, 4, 3), (4, 1, 5, 0), (1, 0, 1, 0)]
    {
        let slab = slab(upper, lower);
        let dest = &slab[0];
        for n in 1..=bound {
            dest.bind();
            assert_eq!(dest.is_overloaded(), n >= upper, "{upper} {lower}");
        }
        for n in (0..bound).rev() {
            dest.unbind(false);
            assert_eq!(dest.is_overloaded(), n > left, "{upper} {lower}: {n} left");
        }
    }
    // Edits: a raised or lifted threshold ends it, a lowered one does not begin it.
    let slab = slab(2, 0);
    let dest = &slab[0];
    (0..2).for_each(|_| dest.bind());
    for (upper, overloaded) in [(1, true), (2, false), (1, false)] {
        dest.configure(1, upper, 0);
        assert_eq!(dest.is_overloaded(), overloaded, "{upper}");
    }
    dest.bind();
    dest.configure(1, 0, 0);
    assert!(!dest.is_overloaded());
}

/// A worker binds while another unbinds: whichever was first, one connection is left, which is below the level.
#[test]
fn no_overload_stays_below_the_level_at_which_it_ends() {
    for (upper, lower) in [(2, 0), (2, 2)] {
        let slab = slab(upper, lower);
        slab[0].bind();
        let mut stuck = 0;
        collide(
            &slab[0],
            DestState::bind,
            |dest| dest.unbind(false),
            |dest| {
                stuck += usize::from(dest.is_overloaded());
                dest.configure(1, 0, 0);
                dest.configure(1, upper, lower);
            },
        );
        assert_eq!((stuck, counts(&slab[0])), (0, (0, 1, 1, false)), "{upper} {lower}");
    }
}

/// The same at the threshold: whichever was first, two connections are left, and it is overloaded.
#[test]
fn no_overload_is_lost_at_the_threshold() {
    let slab = slab(2, 2);
    let dest = &slab[0];
    (0..2).for_each(|_| dest.bind());
    let mut lost = 0;
    collide(
        dest,
        DestState::bind,
        |dest| dest.unbind(false),
        |dest| {
            lost += usize::from(!dest.is_overloaded());
            dest.unbind(false);
            dest.bind();
        },
    );
    assert_eq!((lost, counts(dest)), (0, (0, 2, 2, true)));
}

/// A state change moves a connection: there is no moment at which it is not counted.
#[test]
fn a_connection_that_changes_its_state_is_always_counted() {
    let slab = slab(0, 0);
    let dest = &slab[0];
    dest.bind();
    let shifts = |dest: &DestState| {
        for _ in 0..16 {
            dest.shift(true);
            dest.shift(false);
        }
    };
    let missed = AtomicUsize::new(0);
    let looks = |dest: &DestState| {
        let wrong = (0..32).filter(|_| dest.total() != 1).count();
        missed.fetch_add(wrong, SeqCst);
    };
    collide(dest, looks, shifts, |_| {});
    assert_eq!((missed.into_inner(), counts(dest)), (0, (0, 1, 1, false)));
}
