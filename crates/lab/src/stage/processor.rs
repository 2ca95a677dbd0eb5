//! Use of processors in a step.

use std::path::Path;
use std::time::Duration;

use trimtab_core::document::ProcessorTime;
use trimtab_linux::{PROCFS, process};

/// The processor time that each part of an experiment has used until now.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    /// This process, and the programs that it ran and waited for.
    workload: Duration,
    /// The server of the emulated drive; none without one.
    drive: Option<Duration>,
    /// The service; none under other policies.
    service: Option<Duration>,
    /// All tasks of the machine; none where the kernel does not count it.
    all: Option<Duration>,
}

impl Used {
    /// The use until now; `drive` is what the emulated drive's server says, `service` the service's process.
    pub(super) fn now(drive: Option<Duration>, service: Option<u32>) -> Self {
        let procfs = Path::new(PROCFS);
        let of = |process: &dyn std::fmt::Display| process::processor_time(procfs, process);
        Self {
            workload: of(&"self").unwrap_or_default(),
            drive,
            service: service.and_then(|process| of(&process)),
            all: process::busy_time(procfs),
        }
    }

    /// The use since `before`.
    pub(super) fn since(&self, before: &Self) -> ProcessorTime {
        let span = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
        let part = |now: Option<Duration>, before: Option<Duration>| Some(span(now?, before?));
        let workload_s = span(self.workload, before.workload);
        let drive_s = part(self.drive, before.drive);
        let service_s = part(self.service, before.service);
        let named = workload_s + drive_s.unwrap_or(0.0) + service_s.unwrap_or(0.0);
        let others_s = part(self.all, before.all).map(|all| (all - named).max(0.0));
        ProcessorTime { workload_s, drive_s, service_s, others_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_has_what_was_used_since_the_last_one() {
        let ms = Duration::from_millis;
        let before = Used { workload: ms(100), drive: Some(ms(10)), service: None, all: Some(ms(1000)) };
        let after =
            Used { workload: ms(150), drive: Some(ms(30)), service: Some(ms(5)), all: Some(ms(1100)) };
        let used = after.since(&before);
        assert_eq!((used.workload_s, used.drive_s, used.service_s), (0.05, Some(0.02), None));
        assert!((used.others_s.unwrap() - 0.03).abs() < 1e-9);
        let uncounted = Used { all: None, ..after };
        assert_eq!(uncounted.since(&before).others_s, None);
    }
}
