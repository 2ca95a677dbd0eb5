//! What the screen shows, and what keys do to it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trimtab_observe::watch::{DeviceReport, ProcessReport, Report};

/// How many intervals the curve of discards reaches back.
const HISTORY: usize = 512;

/// What follows a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The user has seen enough.
    Quit,
    /// The screen may have changed.
    Redraw,
}

/// What processes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Discards,
    DiscardBytes,
    Frees,
    FreeBytes,
    WriteBytes,
    ReadBytes,
}

impl Sort {
    const ALL: [Self; 6] =
        [Self::Discards, Self::DiscardBytes, Self::Frees, Self::FreeBytes, Self::WriteBytes, Self::ReadBytes];

    pub fn name(self) -> &'static str {
        match self {
            Self::Discards => "discards",
            Self::DiscardBytes => "bytes discarded",
            Self::Frees => "frees",
            Self::FreeBytes => "bytes freed",
            Self::WriteBytes => "bytes written",
            Self::ReadBytes => "bytes read",
        }
    }

    fn key(self, process: &ProcessReport) -> u64 {
        match self {
            Self::Discards => process.discards,
            Self::DiscardBytes => process.discard_bytes.0,
            Self::Frees => process.frees,
            Self::FreeBytes => process.free_bytes.0,
            Self::WriteBytes => process.write_bytes.0,
            Self::ReadBytes => process.read_bytes.0,
        }
    }

    /// The one so many places further, round and round.
    fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// What the screen shows.
#[derive(Debug)]
pub struct State {
    pub interval: Duration,
    /// The last interval and the whole time; none until the first interval is over.
    pub reports: Option<(Report, Report)>,
    /// Discards a second of every device, the latest last.
    history: BTreeMap<String, VecDeque<f64>>,
    pub paused: bool,
    pub sort: Sort,
    /// The device picked, by its place.
    pub selected: usize,
}

impl State {
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            reports: None,
            history: BTreeMap::new(),
            paused: false,
            sort: Sort::Discards,
            selected: 0,
        }
    }

    /// Takes the last interval and the whole time, unless paused; the curve goes on all the same.
    /// Returns whether there is something new to see.
    pub fn update(&mut self, latest: Report, whole: Report) -> bool {
        for device in &latest.devices {
            let history = self.history.entry(device.name.clone()).or_default();
            history.push_back(device.discards.per_s);
            if history.len() > HISTORY {
                history.pop_front();
            }
        }
        if !self.paused {
            self.reports = Some((latest, whole));
        }
        !self.paused
    }

    /// What a key does.
    pub fn press(&mut self, key: KeyEvent) -> Next {
        let devices = self.reports.as_ref().map_or(0, |(latest, _)| latest.devices.len());
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(devices.saturating_sub(1)),
            KeyCode::Right => self.sort = self.sort.step(1),
            KeyCode::Left => self.sort = self.sort.step(Sort::ALL.len() - 1),
            _ => {}
        }
        Next::Redraw
    }

    /// The device picked, in the last interval and the whole time.
    pub fn device(&self) -> Option<(&DeviceReport, &DeviceReport)> {
        let (latest, whole) = self.reports.as_ref()?;
        latest.devices.get(self.selected).zip(whole.devices.get(self.selected))
    }

    /// The picked device's discards a second in its last `intervals`.
    pub fn curve(&self, intervals: usize) -> Vec<f64> {
        let history = self.device().and_then(|(latest, _)| self.history.get(&latest.name));
        let Some(history) = history else { return Vec::new() };
        history.iter().skip(history.len().saturating_sub(intervals)).copied().collect()
    }

    /// Processes, those that caused most first.
    pub fn processes(&self) -> Vec<&ProcessReport> {
        let mut processes: Vec<_> = self.reports.iter().flat_map(|(_, whole)| &whole.processes).collect();
        processes.sort_by_key(|process| Reverse(self.sort.key(process)));
        processes
    }
}
