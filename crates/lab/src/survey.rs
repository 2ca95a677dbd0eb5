//! The doctor's verdict on a mount, for the service.

use std::path::Path;

use trimtab_core::error::chain;
use trimtab_keeper::service::Ground;
use trimtab_linux::stack::Machine;

use crate::doctor::{ASSUMED_ERASE_BLOCK, Plan, examine};
use crate::interrupt::Interrupt;

/// Examines the storage stack below the file system mounted at `mount`.
///
/// # Errors
/// Why that can't be told, in a line.
pub fn survey(mount: &Path) -> Result<Ground, String> {
    let plan = Plan {
        machine: Machine::live(),
        paths: vec![mount.to_owned()],
        canary: false,
        erase_block: ASSUMED_ERASE_BLOCK,
        invocation: Vec::new(),
    };
    let examined = examine(&plan, &Interrupt::default()).map_err(|error| chain(&error))?;
    let target = examined.document.targets.into_iter().next();
    let found = examined.stacks.into_iter().next().zip(target);
    let (stack, target) = found.ok_or_else(|| "the doctor says nothing of it".to_owned())?;
    Ok(Ground { stack, verdict: target.verdict, reason: target.reason })
}
