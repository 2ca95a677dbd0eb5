//! The speed of writes that pauses give back: how long the drive waits before it works, and how fast it does.

use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::background::Recovery;

use super::super::budget::Budget;
use super::super::error::BenchError;

/// The shortest and the longest pause.
const PAUSES: [Duration; 2] = [Duration::from_millis(25), Duration::from_secs(64)];

/// A pause gave nothing, or all that pauses give, within this part of the most.
const LITTLE: f64 = 0.05;

/// The pauses between the two that are wanted, and the most further ones for them.
const WANTED: usize = 3;
const FURTHER: usize = 5;

/// The shortest pause that gave something and the longest shorter one that gave nothing are brought this close to each
/// other, by at most this many further pauses.
const CLOSE: f64 = 1.15;
const HALVINGS: usize = 5;

/// A line through pauses says something where it explains this part of the spread of what they gave.
const EXPLAINED: f64 = 0.8;

/// The bytes that were written fast after a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pause_s: f64,
    fast: f64,
}

/// Measures bursts after pauses that double until longer ones give no more, then after some that close in on the
/// shortest that gives anything, and some between those that gave nothing and those that gave all. Less than `least`
/// bytes count as nothing.
pub(super) fn measure(
    burst: &mut dyn FnMut(Duration) -> Result<f64, BenchError>,
    least: Bytes,
    budget: Budget,
) -> Result<Vec<Point>, BenchError> {
    let mut point = |pause: Duration| {
        let fast = burst(pause)?;
        Ok::<_, BenchError>(Point {
            pause_s: pause.as_secs_f64(),
            fast: if fast < least.0 as f64 { 0.0 } else { fast },
        })
    };
    let mut points: Vec<Point> = Vec::new();
    let [mut pause, longest] = PAUSES;
    while pause <= longest && pause < budget.left().mul_f64(0.5) && !is_complete(&points) {
        points.push(point(pause)?);
        pause *= 2;
    }
    for (most, next) in [(HALVINGS, closer as fn(&[Point]) -> Option<f64>), (FURTHER, next)] {
        for _ in 0..most {
            let Some(pause_s) = next(&points).filter(|_| !budget.is_over()) else { break };
            points.push(point(Duration::from_secs_f64(pause_s))?);
            points.sort_by(|left, right| left.pause_s.total_cmp(&right.pause_s));
        }
    }
    Ok(points)
}

/// The most that any pause gave.
fn most(points: &[Point]) -> f64 {
    points.iter().map(|point| point.fast).fold(0.0, f64::max)
}

/// Whether longer pauses give no more: the two longest both gave all, or both no more than a shorter one. On some
/// full drives one burst leaves less room in the cache for the next than another.
fn is_complete(points: &[Point]) -> bool {
    let Some((shorter, longest)) = points.split_last_chunk::<2>() else { return false };
    let all = most(points) * (1.0 - LITTLE);
    let before = most(shorter) * (1.0 + LITTLE);
    all > 0.0
        && (longest.iter().all(|point| point.fast >= all)
            || before > 0.0 && longest.iter().all(|point| point.fast <= before))
}

/// The longest pause before the first that gave anything, and that one.
fn onset(points: &[Point]) -> Option<(f64, f64)> {
    let least = LITTLE * most(points);
    let first = points.iter().position(|point| point.fast > 0.0 && point.fast >= least)?;
    Some((first.checked_sub(1).map_or(0.0, |before| points[before].pause_s), points[first].pause_s))
}

/// The pause in the middle of these two; none where they are close enough.
fn closer(points: &[Point]) -> Option<f64> {
    let (nothing, first) = onset(points)?;
    (first > CLOSE * nothing && first > PAUSES[0].as_secs_f64() / 4.0).then(|| f64::midpoint(nothing, first))
}

/// The points between nothing and all, of pauses shorter than the first that gave all.
fn between(points: &[Point]) -> Vec<Point> {
    let most = most(points);
    let shorter = points.iter().take_while(|point| point.fast <= (1.0 - LITTLE) * most);
    shorter.filter(|point| point.fast >= LITTLE * most).copied().collect()
}

/// The pause that would tell most: in the middle of the widest gap between the last that gave nothing and the first
/// that gave all. None where enough are known.
fn next(points: &[Point]) -> Option<f64> {
    let most = most(points);
    if most == 0.0 || between(points).len() >= WANTED {
        return None;
    }
    let nothing = points.iter().rposition(|point| point.fast < LITTLE * most);
    let all = points.iter().position(|point| point.fast > (1.0 - LITTLE) * most)?;
    let start = nothing.map_or(0.0, |at| points[at].pause_s);
    let inside = &points[nothing.map_or(0, |at| at + 1)..=all.max(nothing.map_or(0, |at| at + 1))];
    let mut gaps = Vec::new();
    let mut from = start;
    for point in inside {
        gaps.push((point.pause_s - from, f64::midpoint(from, point.pause_s)));
        from = point.pause_s;
    }
    gaps.into_iter().max_by(|left, right| left.0.total_cmp(&right.0)).map(|(_, middle)| middle)
}

/// Fits the wait and the rate to `points`, in the order of their pauses; none where the pauses give nothing. The drive
/// gives back at most `fastest` bytes a second, where that is known: it tells how much of the shortest pause that gave
/// anything was work, where the points lie on no line.
pub(super) fn fit(points: &[Point], fastest: Option<f64>) -> Option<Recovery> {
    let most = most(points);
    if most <= 0.0 {
        return None;
    }
    let between = between(points);
    let (nothing, first) = onset(points)?;
    let rate = slope(&between).filter(|rate| *rate > 0.0);
    let after_wall_s = match rate {
        Some(rate) => {
            let n = between.len() as f64;
            let mean = |of: fn(&Point) -> f64| between.iter().map(of).sum::<f64>() / n;
            (mean(|point| point.pause_s) - mean(|point| point.fast) / rate).clamp(0.0, first)
        }
        None => {
            let onset = points.iter().find(|point| point.pause_s == first)?;
            let work_s = fastest.map_or(0.0, |fastest| onset.fast / fastest);
            (f64::midpoint(nothing, first) - work_s).max(0.0)
        }
    };
    Some(Recovery {
        after_wall_s,
        mib_s: rate.map(|rate| rate / Bytes::MIB.0 as f64),
        most: Bytes(most as u64),
        complete: is_complete(points),
    })
}

/// The slope of the line through these points in bytes a second (least squares); none of fewer than three, or where
/// they lie on no line.
fn slope(points: &[Point]) -> Option<f64> {
    let n = points.len() as f64;
    let mean = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (pause, fast) = (mean(&|point| point.pause_s), mean(&|point| point.fast));
    let width: f64 = points.iter().map(|point| (point.pause_s - pause).powi(2)).sum();
    let height: f64 = points.iter().map(|point| (point.pause_s - pause) * (point.fast - fast)).sum();
    let spread: f64 = points.iter().map(|point| (point.fast - fast).powi(2)).sum();
    (points.len() >= WANTED && height * height >= EXPLAINED * width * spread).then(|| height / width)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fit to a drive that begins after `after` seconds, empties `rate` bytes a second and has `size`.
    fn found(after: f64, rate: f64, size: f64) -> Option<Recovery> {
        let mut burst = |pause: Duration| Ok(((pause.as_secs_f64() - after).max(0.0) * rate).min(size));
        fit(&measure(&mut burst, Bytes::ZERO, Budget::new(Duration::from_secs(3600))).unwrap(), None)
    }

    #[test]
    fn wait_rate_and_size_are_recovered() {
        let mib = Bytes::MIB.0 as f64;
        for (after, rate, size) in [(0.1, 50.0, 100.0), (0.03, 400.0, 20.0), (5.0, 1000.0, 900.0)] {
            let recovery = found(after, rate * mib, size * mib).unwrap();
            assert!((recovery.after_wall_s / after - 1.0).abs() < 0.05, "{recovery:?}");
            assert!((recovery.mib_s.unwrap() / rate - 1.0).abs() < 0.05, "{recovery:?}");
            assert_eq!((recovery.most, recovery.complete), (Bytes((size * mib) as u64), true));
        }
    }

    #[test]
    fn a_cache_that_empties_at_once_tells_only_how_long_it_waits() {
        let recovery = found(0.6, 1e15, 1e8).unwrap();
        assert!((0.5..0.7).contains(&recovery.after_wall_s), "{recovery:?}");
        assert_eq!(recovery.mib_s, None);
    }

    /// A drive that empties parts of 8 MiB, waits 0.1 s and empties 100 MiB each second. Every other burst finds
    /// a quarter less room.
    #[test]
    fn parts_that_empty_as_a_whole_and_bursts_that_alternate_tell_how_long_the_drive_waits() {
        let mib = Bytes::MIB.0 as f64;
        let mut number = 0;
        let mut burst = |pause: Duration| {
            number += 1;
            let most = if number % 2 == 0 { 32.0 } else { 24.0 };
            let emptied = ((pause.as_secs_f64() - 0.1).max(0.0) * 100.0 / 8.0).floor() * 8.0;
            Ok(emptied.min(most) * mib)
        };
        let points = measure(&mut burst, Bytes::ZERO, Budget::new(Duration::from_secs(3600))).unwrap();
        let recovery = fit(&points, Some(100.0 * mib)).unwrap();
        assert!((recovery.after_wall_s / 0.1 - 1.0).abs() < 0.25, "{recovery:?}");
        assert_eq!((recovery.most, recovery.complete), (Bytes(32 << 20), true));
        assert!(points.iter().all(|point| point.pause_s < 10.0), "longer pauses give no more: {points:?}");
    }

    #[test]
    fn pauses_that_give_nothing_or_not_all_are_told() {
        assert_eq!(found(100.0, 1e6, 1e8), None);
        assert!(!found(1.0, 1e6, 1e9).unwrap().complete);
    }
}
