//! Schedulers as kernel IPVS's sources describe them, on a plain list.

/// Which scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub enum Kind {
    Rr,
    Wrr,
    Lc,
    Wlc,
}

/// One destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Dest {
    pub name: u32,
    pub weight: u32,
    pub overloaded: bool,
    pub active: u32,
    pub inactive: u32,
}

/// A service: its list, newest destination first, and its scheduler's state.
#[derive(Clone, Debug)]
pub struct Sched {
    kind: Kind,
    list: Vec<Dest>,
    /// Name of the destination the scheduler stands on; `None` is the head of the list.
    cursor: Option<u32>,
    /// wrr's current weight, maximum and step.
    cw: u32,
    mw: u32,
    di: u32,
}

impl Sched {
    /// A service without destinations.
    pub fn new(kind: Kind) -> Self {
        Self { kind, list: Vec::new(), cursor: None, cw: 0, mw: 0, di: 1 }
    }

    /// Names of the destinations in list order.
    pub fn names(&self) -> Vec<u32> {
        self.list.iter().map(|dest| dest.name).collect()
    }

    /// Adds a destination at the head.
    pub fn add(&mut self, dest: Dest) {
        self.list.insert(0, dest);
        self.changed();
    }

    /// Deletes a destination: rr steps back to the one before it.
    pub fn delete(&mut self, name: u32) {
        let at = self.at(name);
        if self.cursor == Some(name) {
            self.cursor = at.checked_sub(1).map(|before| self.list[before].name);
        }
        self.list.remove(at);
        self.changed();
    }

    /// Edits a weight.
    pub fn edit(&mut self, name: u32, weight: u32) {
        self.dest(name).weight = weight;
        self.changed();
    }

    /// The destination of that name; its counts and its flag are the caller's to keep.
    pub fn dest(&mut self, name: u32) -> &mut Dest {
        let at = self.at(name);
        &mut self.list[at]
    }

    /// Picks for a new connection; counts do not move.
    pub fn pick(&mut self) -> Option<u32> {
        match self.kind {
            Kind::Rr => self.rr(),
            Kind::Wrr => self.wrr(),
            Kind::Lc => self.least(|_| 1),
            Kind::Wlc => self.least(|dest| dest.weight.into()),
        }
    }

    fn rr(&mut self) -> Option<u32> {
        let first = self.after_cursor();
        for step in 0..self.list.len() {
            let dest = &self.list[(first + step) % self.list.len()];
            if dest.weight > 0 && !dest.overloaded {
                self.cursor = Some(dest.name);
                return self.cursor;
            }
        }
        None
    }

    fn wrr(&mut self) -> Option<u32> {
        if self.mw == 0 {
            return None;
        }
        let start = self.cursor;
        let (mut last_pass, mut wrapped, mut stop) = (false, false, None);
        let mut first = self.after_cursor();
        loop {
            for dest in &self.list[first..] {
                if dest.weight >= self.cw && !dest.overloaded {
                    self.cursor = Some(dest.name);
                    return self.cursor;
                }
                if stop.is_some() && stop == Some(dest.name) {
                    self.cursor = stop;
                    return None;
                }
            }
            first = 0;
            if self.cw <= self.di {
                self.cw = self.mw;
                if last_pass || start.is_none() {
                    self.cursor = None;
                    return None;
                }
                wrapped = true;
            } else {
                self.cw -= self.di;
            }
            last_pass = self.cw <= self.di;
            if last_pass && wrapped {
                stop = start;
            }
        }
    }

    /// Least overhead per share; the first of equals.
    fn least(&self, share: impl Fn(&Dest) -> u64) -> Option<u32> {
        let load = |dest: &Dest| u64::from(dest.active) * 256 + u64::from(dest.inactive);
        let mut best: Option<&Dest> = None;
        for dest in self.list.iter().filter(|dest| dest.weight > 0 && !dest.overloaded) {
            if best.is_none_or(|best| load(dest) * share(best) < load(best) * share(dest)) {
                best = Some(dest);
            }
        }
        best.map(|dest| dest.name)
    }

    /// Position of the destination after the one the scheduler stands on.
    fn after_cursor(&self) -> usize {
        self.cursor.map_or(0, |name| self.at(name) + 1)
    }

    fn at(&self, name: u32) -> usize {
        self.list.iter().position(|dest| dest.name == name).expect("a destination in the list")
    }

    /// Tells the scheduler that the list or a weight changed.
    fn changed(&mut self) {
        if self.kind != Kind::Wrr {
            return;
        }
        self.cursor = None;
        let weights: Vec<u32> =
            self.list.iter().map(|dest| dest.weight).filter(|weight| *weight > 0).collect();
        // The largest number that divides all of them, by trial.
        let most = weights.iter().copied().max().unwrap_or(0);
        self.di = (1..=most).rev().find(|di| weights.iter().all(|weight| weight % di == 0)).unwrap_or(1);
        self.mw = (most + 1).saturating_sub(self.di);
        if self.cw > self.mw || self.cw == 0 {
            self.cw = self.mw;
        } else if self.di > 1 {
            self.cw = self.cw / self.di * self.di + 1;
        }
    }
}
