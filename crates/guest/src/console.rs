//! The guest's console: what its kernel says, and its first process of every step.

use trimtab_core::Bytes;

use super::error::GuestError;

/// The lines that an error keeps.
const KEPT: usize = 20;
/// Messages of a kernel whose memory is used up, before or while it runs.
const OUT_OF_MEMORY: [&str; 4] = [
    "Out of memory",
    "System is deadlocked on memory",
    "Initramfs unpacking failed: write error",
    "Cannot allocate memory",
];

/// Returns the last lines of a console.
pub(super) fn tail(console: &[u8]) -> String {
    let text = String::from_utf8_lossy(console);
    let lines: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(KEPT)..].join("\n")
}

/// Why a guest with this console ended without results.
pub(super) fn diagnose(console: &[u8], memory: Bytes) -> GuestError {
    let text = String::from_utf8_lossy(console);
    if OUT_OF_MEMORY.iter().any(|said| text.contains(said)) {
        return GuestError::OutOfMemory { memory };
    }
    if let Some(process) = spinning(&text) {
        return GuestError::Spins { process };
    }
    GuestError::Died { console: tail(console) }
}

/// The kernel's words about a process that spins.
fn spinning(console: &str) -> Option<String> {
    let (_, panic) = console.split_once("Kernel panic - not syncing: process ")?;
    let line = panic.lines().next().filter(|line| line.contains(" spins: "))?;
    Some(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::error::last;
    use super::*;

    #[test]
    fn memory_that_is_used_up_is_recognised() {
        let memory = Bytes(512 << 20);
        let said = b"x\r\nKernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled\r\n";
        assert!(
            matches!(diagnose(said, memory), GuestError::OutOfMemory { memory: Bytes(m) } if m == 512 << 20)
        );
    }

    #[test]
    fn process_that_spins_is_named() {
        let said = b"x\nKernel panic - not syncing: process sh (42) spins: 9 s of processor time\ny\n";
        let error = diagnose(said, Bytes(1)).to_string();
        assert!(
            error.contains("in a loop: sh (42) spins: 9 s of processor time; use --engine qemu"),
            "{error}"
        );
    }

    #[test]
    fn error_keeps_the_last_lines_and_says_the_one_that_matters() {
        let mut said: String = (0..100).map(|n| format!("line {n}\r\n")).collect();
        let error = diagnose(said.as_bytes(), Bytes(1)).to_string();
        assert_eq!(error, "the guest ended without results; its console ends with: line 99");
        said += "Kernel panic - not syncing: Attempted to kill init!\r\nmore\r\n";
        let GuestError::Died { console } = diagnose(said.as_bytes(), Bytes(1)) else { panic!() };
        assert_eq!(console.lines().count(), KEPT);
        assert!(last(&console).starts_with("Kernel panic"));
        assert_eq!(last(""), "(nothing)");
    }
}
