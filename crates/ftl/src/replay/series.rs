//! Series over a replay: the reserve over time, and erases by phase.

use trimtab_core::Nanos;
use trimtab_core::document::sim::ReservePoint;

/// Points that a series of one pass has.
const POINTS: u64 = 200;
/// Points from which on every second one is left out, and as many more are skipped.
const MOST: usize = 2 * POINTS as usize;

/// A reserve over time: as many points however long it gets.
pub(super) struct Series {
    points: Vec<ReservePoint>,
    spacing: Nanos,
    next: Nanos,
}

impl Series {
    /// For passes that take `span` each.
    pub(super) fn new(span: Nanos) -> Self {
        let spacing = Nanos((span.0 / POINTS).max(1));
        Self { points: Vec::with_capacity(MOST), spacing, next: Nanos::ZERO }
    }

    /// Whether a point at `traced` is wanted.
    pub(super) fn is_due(&self, traced: Nanos) -> bool {
        traced >= self.next
    }

    /// Adds a point.
    pub(super) fn add(&mut self, point: ReservePoint) {
        if self.points.len() == MOST {
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.spacing = self.spacing * 2;
        }
        self.next = self.spacing * (point.trace_ns.0 / self.spacing.0 + 1);
        self.points.push(point);
    }

    /// All points.
    pub(super) fn points(&self) -> &[ReservePoint] {
        &self.points
    }
}

/// Phases that the trace's time is cut into.
pub(super) const PHASES: usize = 10;

/// Erases by phase of the trace.
pub(super) struct Phases {
    span: Nanos,
    counts: [u64; PHASES],
    counted: u64,
    phase: usize,
    /// When the phase is over, in the time of the pass.
    end: Nanos,
}

impl Phases {
    /// For passes that take `span` each, on a drive with `erases` so far.
    pub(super) fn new(span: Nanos, erases: u64) -> Self {
        let mut phases = Self { span, counts: [0; PHASES], counted: erases, phase: 0, end: Nanos::ZERO };
        phases.begin(0);
        phases
    }

    fn begin(&mut self, phase: usize) {
        self.phase = phase;
        self.end = match phase + 1 {
            PHASES => Nanos(u64::MAX),
            next => Nanos((u128::from(self.span.0) * next as u128 / PHASES as u128) as u64),
        };
    }

    /// Whether the phase is over at `at` in the pass.
    pub(super) fn is_over(&self, at: Nanos) -> bool {
        self.phase + 1 < PHASES && at >= self.end
    }

    /// Goes on to the phase of `at`; until now there were `erases`.
    pub(super) fn advance(&mut self, at: Nanos, erases: u64) {
        self.count(erases);
        while self.is_over(at) {
            self.begin(self.phase + 1);
        }
    }

    /// A pass is over, with `erases` until now: the next begins with the first phase.
    pub(super) fn restart(&mut self, erases: u64) {
        self.count(erases);
        self.begin(0);
    }

    fn count(&mut self, erases: u64) {
        self.counts[self.phase] += erases - self.counted;
        self.counted = erases;
    }

    /// Erases in each phase.
    pub(super) fn counts(&self) -> &[u64] {
        &self.counts
    }
}
