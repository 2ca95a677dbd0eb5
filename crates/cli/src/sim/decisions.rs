//! `trimtab sim --decisions FILE`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use trimtab_core::Bytes;
use trimtab_core::policy::{TrimRequest, TrimScope, Why};
use trimtab_keeper::decision_log::{Decision, replay};

/// Prints a line for each trim, for each change of the reason to wait, and for each decision that differs.
pub fn run(log: &Path) -> Result<ExitCode> {
    let mut began: Option<Duration> = None;
    let mut last: Option<Why> = None;
    let (mut decisions, mut trims, mut differ) = (0_u64, 0_u64, 0_u64);
    let mut output = io::stdout().lock();
    let mut failed = Ok(());
    let head = replay(log, |decision| {
        let began = *began.get_or_insert(decision.at);
        decisions += 1;
        trims += u64::from(!decision.requests.is_empty());
        differ += u64::from(!decision.is_same);
        if !decision.requests.is_empty() || !decision.is_same || last != Some(decision.explanation.why) {
            let line = described(&decision, decision.at.saturating_sub(began));
            failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| writeln!(output, "{line}"));
        }
        last = Some(decision.explanation.why);
    })?;
    failed?;
    let outcome = if differ == 0 {
        "as logged".to_owned()
    } else {
        format!("{differ} otherwise than version {} did", head.version)
    };
    writeln!(output, "{}: {decisions} decisions, {trims} of them trims, {outcome}", head.mount)?;
    Ok(if differ == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a line about a decision that was made `after` the first.
fn described(decision: &Decision, after: Duration) -> String {
    let mut line = format!("line {}, after {:.2} s: ", decision.line, after.as_secs_f64());
    match decision.requests.as_slice() {
        [] => line += "waits: ",
        requests => {
            let (extents, bytes) = size(requests);
            _ = write!(line, "trims {bytes} in {extents} extents: ");
        }
    }
    if !decision.is_same {
        line += "(the log has another decision) ";
    }
    line + &decision.explanation.to_string()
}

/// Returns the number of extents that the requests name, and their bytes.
fn size(requests: &[TrimRequest]) -> (usize, Bytes) {
    let named = requests.iter().filter_map(|request| match &request.scope {
        TrimScope::Within(extents) => Some((extents.count(), extents.len())),
        TrimScope::Everything => None,
    });
    named.fold((0, Bytes::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}
