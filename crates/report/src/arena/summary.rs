//! Figures over the cells of one set and think time.

use super::standing::{Loss, Standing};

/// The cells of one set and think time.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The set.
    pub set: String,
    /// The think time, as a multiple of the recorded one; none for all of the set.
    pub think_scale: Option<f64>,
    /// The number of cells.
    pub cells: usize,
    /// The geometric mean of the waits over the best other policy's.
    pub wait: f64,
    /// The largest of them.
    pub worst_wait: f64,
    /// The geometric mean of the waits over the bound's; `None` if it was replayed in no cell.
    pub wait_over_ideal: Option<f64>,
    /// The cells that miss the bar of waits, of erases, and of reads.
    pub losses: [usize; 3],
    /// The cells that miss any bar.
    pub lost: usize,
}

/// The groups of `standings`, by set and think time, each set with a group of all its cells at its end.
pub fn groups(standings: &[Standing]) -> Vec<Group> {
    let mut sets: Vec<&str> = standings.iter().map(|it| it.cell.set.as_str()).collect();
    sets.sort_unstable();
    sets.dedup();
    let mut scales: Vec<f64> = standings.iter().map(|it| it.cell.think_scale).collect();
    scales.sort_by(f64::total_cmp);
    scales.dedup();
    let of = |set: &str, scale: Option<f64>| {
        let belongs =
            |it: &&Standing| it.cell.set == set && scale.is_none_or(|scale| scale == it.cell.think_scale);
        Group::of(set, scale, standings.iter().filter(belongs).collect())
    };
    let scales = || scales.iter().copied().map(Some).chain([None]);
    sets.iter().flat_map(|set| scales().filter_map(|scale| of(set, scale))).collect()
}

impl Group {
    fn of(set: &str, think_scale: Option<f64>, cells: Vec<&Standing>) -> Option<Self> {
        let waits = || cells.iter().map(|it| it.wait);
        let count = |loss: Loss| cells.iter().filter(|it| it.losses.contains(&loss)).count();
        Some(Self {
            set: set.to_owned(),
            think_scale,
            cells: cells.len(),
            wait: geometric_mean(waits())?,
            worst_wait: waits().fold(0.0, f64::max),
            wait_over_ideal: geometric_mean(cells.iter().filter_map(|it| it.wait_over_ideal)),
            losses: [Loss::Wait, Loss::Erases, Loss::ReadP99].map(count),
            lost: cells.iter().filter(|it| !it.is_won()).count(),
        })
    }
}

/// The geometric mean; none of nothing.
fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::super::standing::standings;
    use super::super::standing::tests::{document, run};
    use super::*;

    #[test]
    fn groups_are_means_of_their_cells() {
        let mut runs = Vec::new();
        for (trace, scale, waited) in [("a", 0.0, 2000), ("b", 0.0, 8000), ("a", 1.0, 1000)] {
            runs.push(run(trace, scale, "none", [1000, 100, 100]));
            runs.push(run(trace, scale, "smart", [waited, 110, 100]));
            runs.push(run(trace, scale, "ideal", [500, 100, 100]));
        }
        let groups = groups(&standings(&document(runs)));
        let scales: Vec<_> = groups.iter().map(|group| (group.think_scale, group.cells)).collect();
        assert_eq!(scales, [(Some(0.0), 2), (Some(1.0), 1), (None, 3)]);
        assert!((groups[0].wait - 4.0).abs() < 1e-12, "{}", groups[0].wait);
        assert!((groups[0].wait_over_ideal.unwrap() - 8.0).abs() < 1e-12);
        assert!((groups[2].wait - 16_f64.cbrt()).abs() < 1e-12);
        assert_eq!((groups[0].worst_wait, groups[0].losses, groups[0].lost), (8.0, [2, 2, 0], 2));
        assert_eq!((groups[1].losses, groups[1].lost), ([0, 1, 0], 1));
    }
}
