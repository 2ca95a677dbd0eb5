//! When requests of a trace come to the model.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use trimtab_core::Nanos;

use crate::controller::CommandSender;
use crate::host::ClosedLoop;

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Moment {
    traced: Nanos,
    model: Nanos,
}

/// Places moments of a trace in model time, in order: as long after the request that was done last
/// in the trace, as the model did that one. Never before the moment placed last.
pub(super) struct Arrivals {
    /// When requests are done that are under way in the trace.
    in_flight: BinaryHeap<Reverse<Moment>>,
    /// When the last one was done that is not under way any more.
    done: Moment,
    last: Nanos,
    /// How much longer the host thinks than in the trace.
    think_scale: f64,
    /// The requests whose end is not in the trace.
    open: ClosedLoop,
    /// When all requests so far are done.
    busy_until: Nanos,
    waited: Nanos,
}

impl Arrivals {
    /// No request is under way. Of those whose latency isn't known, at most `queue_depth` are in
    /// flight at a time. The host thinks `think_scale` times as long between requests as in the trace.
    pub(super) fn new(queue_depth: u32, think_scale: f64) -> Self {
        let open = ClosedLoop::new(queue_depth);
        Self {
            in_flight: BinaryHeap::new(),
            done: Moment::default(),
            last: Nanos::ZERO,
            think_scale,
            open,
            busy_until: Nanos::ZERO,
            waited: Nanos::ZERO,
        }
    }

    /// For how long one or more requests were under way.
    pub(super) fn waited(&self) -> Nanos {
        self.waited
    }

    /// As [`waited`](Self::waited), of the time up to `now`.
    pub(super) fn waited_by(&self, now: Nanos) -> Nanos {
        self.waited.saturating_sub(self.busy_until.saturating_sub(now))
    }

    /// Whether a request is under way at `now`, in the model's time.
    pub(super) fn is_busy(&self, now: Nanos) -> bool {
        self.busy_until > now
    }

    /// When what will have happened at `traced` will happen in the model, as far as is known now.
    pub(super) fn foresee(&self, traced: Nanos) -> Nanos {
        let over = self.in_flight.iter().map(|Reverse(moment)| *moment).filter(|it| it.traced <= traced);
        let done = over.max().unwrap_or(self.done);
        self.last.max(self.after(done, traced))
    }

    /// When what happens at `traced` happens in the model, if it follows from what was `done`.
    fn after(&self, done: Moment, traced: Nanos) -> Nanos {
        let thought = traced.saturating_sub(done.traced);
        // Multiplied only where it has to be: that rounds.
        let scaled = |scale: f64| Nanos((thought.0 as f64 * scale) as u64);
        done.model + if self.think_scale == 1.0 { thought } else { scaled(self.think_scale) }
    }

    /// When what happened at `traced` happens in the model.
    pub(super) fn place(&mut self, traced: Nanos) -> Nanos {
        while let Some(Reverse(moment)) = self.in_flight.peek()
            && moment.traced <= traced
        {
            self.done = *moment;
            self.in_flight.pop();
        }
        self.last = self.last.max(self.after(self.done, traced));
        self.last
    }

    /// Nothing is placed before `model` from now on.
    pub(super) fn not_before(&mut self, model: Nanos) {
        self.last = self.last.max(model);
    }

    /// Sends a request that came at `traced` and is placed at `arrival`: `submit` hands it to the
    /// model and returns when that is done with it.
    pub(super) fn send(
        &mut self,
        traced: Nanos,
        arrival: Nanos,
        latency: Option<Nanos>,
        submit: impl FnOnce(Nanos) -> Nanos,
    ) {
        let Some(latency) = latency else {
            let arrival = self.open.send_from(arrival);
            self.not_before(arrival);
            let done = submit(arrival);
            self.open.finish(done);
            return self.wait(arrival, done);
        };
        let done = submit(arrival);
        self.in_flight.push(Reverse(Moment { traced: traced + latency, model: done }));
        self.wait(arrival, done);
    }

    /// A request was under way; requests begin in their order.
    fn wait(&mut self, arrival: Nanos, done: Nanos) {
        self.waited += done.saturating_sub(arrival.max(self.busy_until));
        self.busy_until = self.busy_until.max(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(queue_depth: u32, requests: &[(u64, Option<u64>)], takes: u64) -> Vec<u64> {
        let mut arrivals = Arrivals::new(queue_depth, 1.0);
        let place = |(at, latency): &(u64, Option<u64>)| {
            let mut sent = Nanos::ZERO;
            let arrival = arrivals.place(Nanos(*at));
            arrivals.send(Nanos(*at), arrival, latency.map(Nanos), |arrival| {
                sent = arrival;
                arrival + Nanos(takes)
            });
            sent.0
        };
        requests.iter().map(place).collect()
    }

    #[test]
    fn request_keeps_its_delay_after_the_one_it_followed() {
        let one_by_one = [(100, Some(10)), (115, Some(10)), (125, Some(1)), (200, Some(1))];
        assert_eq!(arrivals(1, &one_by_one, 10), [100, 115, 125, 209], "a faster end in the trace");
        assert_eq!(arrivals(1, &one_by_one, 1000), [100, 1105, 2105, 3179]);
        assert_eq!(arrivals(1, &one_by_one, 0), [100, 105, 105, 179]);
    }

    #[test]
    fn think_times_are_scaled() {
        let sent = |scale: f64| {
            let mut arrivals = Arrivals::new(1, scale);
            [(100, 10), (115, 10), (200, 1)].map(|(at, latency)| {
                let arrival = arrivals.place(Nanos(at));
                arrivals.send(Nanos(at), arrival, Some(Nanos(latency)), |arrival| arrival + Nanos(20));
                arrival.0
            })
        };
        // 100, 5 and 75 between requests that take 20.
        assert_eq!(sent(1.0), [100, 125, 220]);
        assert_eq!(sent(0.0), [0, 20, 40]);
        assert_eq!(sent(0.1), [10, 30, 57]);
        assert_eq!(sent(10.0), [1000, 1070, 1840]);
    }

    #[test]
    fn requests_under_way_together_stay_together() {
        let burst = [(0, Some(50)), (10, Some(50)), (20, Some(50)), (55, Some(1)), (61, Some(1))];
        assert_eq!(arrivals(1, &burst, 500), [0, 10, 20, 505, 511]);
        assert_eq!(arrivals(1, &burst, 5), [0, 10, 20, 20, 20], "never before the one before");
    }

    #[test]
    fn waited_time_counts_only_while_a_request_is_under_way() {
        let mut arrivals = Arrivals::new(1, 1.0);
        for (arrival, done) in [(0, 10), (5, 8), (9, 20), (30, 31)] {
            arrivals.send(Nanos(arrival), Nanos(arrival), Some(Nanos(1)), |_| Nanos(done));
        }
        assert_eq!(arrivals.waited(), Nanos(21));
        arrivals.send(Nanos(40), Nanos(40), Some(Nanos(1)), |_| Nanos(50));
        assert_eq!([40, 44, 50, 60].map(|now| arrivals.waited_by(Nanos(now))), [21, 25, 31, 31].map(Nanos));
    }

    #[test]
    fn trace_without_latencies_sets_the_time_until_the_queue_is_full() {
        let open = [(0, None), (10, None), (20, None), (500, None)];
        assert_eq!(arrivals(2, &open, 5), [0, 10, 20, 500]);
        assert_eq!(arrivals(2, &open, 100), [0, 10, 100, 500]);
        assert_eq!(arrivals(1, &open, 1000), [0, 1000, 2000, 3000]);
    }
}
