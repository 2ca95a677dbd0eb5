//! Completes the fix of a finding on one layer by what the machine's settings say.

use trimtab_core::verdict::Finding;
use trimtab_linux::stack::Setup;

use super::findings;

/// Takes the fix of [`findings::FORCED_OFF`] away where the kernel's command line does not turn TRIM off: the kernel's own list
/// of drives does.
pub(super) fn name_who_forced(finding: &mut Finding, setup: &Setup) {
    if finding.id != findings::FORCED_OFF || setup.command_line.iter().any(|word| word.contains("notrim")) {
        return;
    }
    finding.fix = None;
    finding.cost = None;
    finding.why = "Nothing on the kernel's command line says so: the drive is on the kernel's list of those that lose data with it."
        .to_owned();
}
