//! Work that a drive does by itself, in sentences and a table.

use trimtab_core::document::background::{Background, Burst, BurstState, CacheFit, LazyFit};

use crate::number::{bytes, latency, percent, significant};
use crate::table::{Cell, Column, Table};

/// The heading of the table.
pub const TITLE: &str = "Bursts of writes after pauses, in wall time";

/// The findings in sentences; none where the drive does nothing by itself.
pub fn sentences(background: &Background) -> Vec<String> {
    let Background { cache, cleaning, lazy, busy_share, .. } = background;
    let cache = cache.as_ref().map(cache_sentence);
    let cleaning = cleaning.as_ref().map(|cleaning| {
        format!(
            "After a pause of {}, up to {} of random writes are faster: the drive cleans blocks while it idles.",
            latency(cleaning.after_wall_s * 1e6),
            bytes(cleaning.most.0 as f64)
        )
    });
    let busy = busy_share.map(|share| {
        format!(
            "Reads beside a large discard are as slow as if it took {} of the flash's time.",
            percent(share)
        )
    });
    [cache, cleaning, lazy.as_ref().map(lazy_sentence), busy].into_iter().flatten().collect()
}

fn cache_sentence(cache: &CacheFit) -> String {
    let refill = cache.refill.as_ref().map(|refill| {
        let rate = refill.mib_s.map(|rate| format!(", {} MiB each second", significant(rate)));
        format!(
            " On a full drive, pauses from {} on bring up to {} of it back{}.",
            latency(refill.after_wall_s * 1e6),
            bytes(refill.most.0 as f64),
            rate.unwrap_or_default()
        )
    });
    format!(
        "A cache takes {} of writes at {} MiB/s; when it is full, they go at {} MiB/s.{}",
        bytes(cache.empty.0 as f64),
        significant(cache.fast_mib_s),
        significant(cache.slow_mib_s),
        refill.unwrap_or_default()
    )
}

fn lazy_sentence(lazy: &LazyFit) -> String {
    format!(
        "The drive goes on after a discard has returned: {} for each GiB, {} more where it had data, with {} of the \
         flash's time.",
        latency(lazy.per_gib_ms * 1e3),
        latency(lazy.per_mapped_gib_ms * 1e3),
        percent(lazy.share)
    )
}

/// The bursts, with their first and last rates; none where there are none.
pub fn bursts(background: &Background) -> Option<Table> {
    let bursts = &background.bursts;
    let state = |burst: &Burst| match burst.state {
        BurstState::Empty => "sequential, all discarded",
        BurstState::Full => "sequential, full",
        BurstState::Aged => "random, aged",
    };
    let rate = |burst: &Burst, last: bool| {
        let quarter = burst.rounds.len().div_ceil(4);
        let rounds =
            if last { &burst.rounds[burst.rounds.len() - quarter..] } else { &burst.rounds[..quarter] };
        let (written, seconds) = rounds.iter().fold((0.0, 0.0), |(written, seconds), round| {
            (written + round.bytes.mib(), seconds + round.wall_s)
        });
        Cell::plain(if seconds > 0.0 { significant(written / seconds) } else { String::new() })
    };
    let written = |burst: &Burst| bytes(burst.rounds.iter().map(|round| round.bytes.0 as f64).sum());
    (!bursts.is_empty()).then(|| {
        Table(vec![
            Column::new("writes", bursts.iter().map(|burst| Cell::plain(state(burst)))),
            Column::new(
                "pause before",
                bursts.iter().map(|burst| Cell::plain(latency(burst.pause_wall_s * 1e6))),
            ),
            Column::new("written", bursts.iter().map(|burst| Cell::plain(written(burst)))),
            Column::new("MiB/s, first quarter", bursts.iter().map(|burst| rate(burst, false))),
            Column::new("last quarter", bursts.iter().map(|burst| rate(burst, true))),
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_that_a_discard_takes_is_said_where_it_was_felt() {
        let felt = Background { busy_share: Some(0.3), ..Background::default() };
        assert_eq!(
            sentences(&felt),
            ["Reads beside a large discard are as slow as if it took 30 % of the flash's time."]
        );
        assert_eq!(sentences(&Background::default()), [""; 0]);
    }
}
