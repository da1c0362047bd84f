//! Fixed arrays of zeroed records.

use std::ops::{Deref, DerefMut};

use zerocopy::FromZeros;

/// An array that never grows.
pub struct Slab<T>(Vec<T>);

impl<T: FromZeros> Slab<T> {
    pub fn new(len: usize, _prefault: bool) -> Option<Self> {
        T::new_vec_zeroed(len).ok().map(Slab)
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for Slab<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
