//! The timer that runs fstrim.

use std::fs;

use super::{Reader, Timer, systemctl};

const PROPERTIES: &str = "LoadState,UnitFileState,ActiveState,LastTriggerUSec,NextElapseUSecRealtime";

/// Returns the state of `fstrim.timer` by the service manager; none where there is no service manager.
pub(super) fn read(reader: &mut Reader) -> Option<Timer> {
    if !reader.machine.is_live() {
        return parse(&fs::read_to_string(reader.machine.file("/trimtab/timer")).ok()?);
    }
    let answer = systemctl::show(reader.machine, "fstrim.timer", PROPERTIES)?;
    let answer = reader.noting("run systemctl", answer)?;
    if !answer.status.success() {
        let said = String::from_utf8_lossy(&answer.stderr);
        reader.left_out.push(format!("cannot ask systemctl about fstrim.timer: {}", said.trim()));
    }
    parse(&String::from_utf8_lossy(&answer.stdout))
}

/// Reads lines `PROPERTY=VALUE`; none where no unit was loaded.
fn parse(text: &str) -> Option<Timer> {
    let of = |property| systemctl::values(text, property).next();
    let time = |property| of(property).filter(|time| !matches!(*time, "" | "n/a" | "0")).map(str::to_owned);
    of("LoadState").filter(|state| *state == "loaded")?;
    Some(Timer {
        enabled: of("UnitFileState").is_some_and(|state| state.starts_with("enabled")),
        active: of("ActiveState") == Some("active"),
        last: time("LastTriggerUSec"),
        next: time("NextElapseUSecRealtime"),
    })
}

impl Timer {
    /// The lines that are read back as this.
    pub(in crate::stack) fn lines(&self) -> String {
        let (file, active) = (
            if self.enabled { "enabled" } else { "disabled" },
            if self.active { "active" } else { "inactive" },
        );
        let [last, next] = [&self.last, &self.next].map(|time| time.as_deref().unwrap_or_default());
        format!(
            "LoadState=loaded\nUnitFileState={file}\nActiveState={active}\nLastTriggerUSec={last}\n\
             NextElapseUSecRealtime={next}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_systemctl_is_read() {
        let timer = Timer {
            enabled: true,
            active: false,
            last: Some("Mon 2026-11-16 00:14:41 UTC".to_owned()),
            next: None,
        };
        assert_eq!(parse(&timer.lines()), Some(timer));
        assert_eq!(parse("LoadState=not-found\nUnitFileState=\nActiveState=inactive\n"), None);
        assert_eq!(parse(""), None);
    }
}
