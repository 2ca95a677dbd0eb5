//! When things happen in a laptop's days.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// From midnight until the working day begins.
const NIGHT: Duration = Duration::from_secs(8 * 3600);
/// The time of work, without lunch.
const WORK: Duration = Duration::from_secs(8 * 3600);
/// Lunch, in the middle of it.
const LUNCH: Duration = Duration::from_secs(3600);
/// From the end of work until midnight.
const EVENING: Duration = Duration::from_secs(7 * 3600);
/// How often the user turns to the browser: every five minutes of work, on average.
pub const VISITS: usize = 96;
/// How often a document is saved: after visits drawn at random.
pub const SAVES: usize = 60;

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nothing, for so long.
    Pause(&'static str, Duration),
    /// Packages are updated.
    Update,
    /// Some pages are visited.
    Browse,
    /// A document is read and saved.
    Save,
    /// A project is built.
    Build,
    /// A build's output is deleted.
    Clean,
    /// A large file is downloaded.
    Download,
    /// The download is deleted.
    Tidy,
}

/// Returns what happens on the day of this number, counted from 0, from midnight to midnight. The pauses amount to 24 hours.
pub fn schedule(seed: u64, day: u32) -> Vec<Event> {
    let mut random = SmallRng::seed_from_u64(seed.wrapping_add(day.into()) ^ 0x6c61_7074_6f70);
    let mut saves = [true; VISITS];
    saves[SAVES..].fill(false);
    saves.shuffle(&mut random);
    let mut events = vec![Event::Pause("night", NIGHT)];
    for (visit, pause) in pauses(&mut random).into_iter().enumerate() {
        match visit {
            0 => events.push(Event::Update),
            12 => events.push(Event::Download),
            24 if day == 0 => events.push(Event::Build),
            // The output of the day before is still there.
            24 => events.extend([Event::Clean, Event::Build]),
            48 => events.push(Event::Pause("lunch", LUNCH)),
            72 => events.extend([Event::Clean, Event::Build]),
            90 => events.push(Event::Tidy),
            _ => {}
        }
        events.push(Event::Browse);
        if saves[visit] {
            events.push(Event::Save);
        }
        events.push(Event::Pause("think", pause));
    }
    events.push(Event::Pause("evening", EVENING));
    events
}

/// The pauses after each visit: exponential, and together the time of work.
fn pauses(random: &mut SmallRng) -> Vec<Duration> {
    let weights: Vec<f64> = (0..VISITS).map(|_| -(1.0 - random.random::<f64>()).ln()).collect();
    let total: f64 = weights.iter().sum();
    // Whole seconds, and none without any.
    let seconds = |weight: &f64| (WORK.as_secs_f64() * weight / total).round().max(1.0);
    let mut pauses: Vec<_> = weights.iter().map(|weight| Duration::from_secs_f64(seconds(weight))).collect();
    let rest = pauses.iter().sum::<Duration>();
    let longest = pauses.iter_mut().max().expect("there are visits");
    *longest = *longest + WORK - rest;
    pauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_amount_to_a_day() {
        for seed in 0..20 {
            let events = schedule(seed, 0);
            let pauses: Vec<_> = events
                .iter()
                .filter_map(|event| if let Event::Pause(_, length) = event { Some(*length) } else { None })
                .collect();
            assert_eq!(pauses.iter().sum::<Duration>(), Duration::from_secs(24 * 3600));
            assert!(pauses.iter().all(|pause| *pause >= Duration::from_secs(1)));
            let count = |wanted| events.iter().filter(|event| **event == wanted).count();
            assert_eq!((count(Event::Browse), count(Event::Save)), (VISITS, SAVES));
            assert_eq!((count(Event::Build), count(Event::Clean)), (2, 1));
            assert_eq!((count(Event::Download), count(Event::Tidy), count(Event::Update)), (1, 1, 1));
        }
    }

    #[test]
    fn a_day_depends_on_its_seed_and_number_only() {
        assert_eq!(schedule(1, 0), schedule(1, 0));
        assert_ne!(schedule(1, 0), schedule(2, 0));
        assert_ne!(schedule(1, 0), schedule(1, 1));
    }
}
