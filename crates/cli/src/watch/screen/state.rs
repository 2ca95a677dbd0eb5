//! The state of the screen, and the effect of keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trimtab_observe::watch::{DeviceReport, ProcessReport, Report};

/// The number of intervals in the curve of discards.
const HISTORY: usize = 512;

/// The effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Quit.
    Quit,
    /// The screen may have changed.
    Redraw,
}

/// The sort order of processes.
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

    /// Returns the order `by` places further, cyclically.
    fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// The state of the screen.
#[derive(Debug)]
pub struct State {
    pub interval: Duration,
    /// The reports of the last interval and of the whole time; none until the first interval is over.
    pub reports: Option<(Report, Report)>,
    /// Discards per second of every device, the latest last.
    history: BTreeMap<String, VecDeque<f64>>,
    pub paused: bool,
    pub sort: Sort,
    /// The index of the selected device.
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

    /// Takes the reports of the last interval and of the whole time, unless paused; the curve continues
    /// anyway. Returns true if the screen changes.
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

    /// Applies a key.
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

    /// Returns the selected device's reports of the last interval and of the whole time.
    pub fn device(&self) -> Option<(&DeviceReport, &DeviceReport)> {
        let (latest, whole) = self.reports.as_ref()?;
        latest.devices.get(self.selected).zip(whole.devices.get(self.selected))
    }

    /// Returns the selected device's discards per second in its last `intervals`.
    pub fn curve(&self, intervals: usize) -> Vec<f64> {
        let history = self.device().and_then(|(latest, _)| self.history.get(&latest.name));
        let Some(history) = history else { return Vec::new() };
        history.iter().skip(history.len().saturating_sub(intervals)).copied().collect()
    }

    /// Returns the processes, the most active first.
    pub fn processes(&self) -> Vec<&ProcessReport> {
        let mut processes: Vec<_> = self.reports.iter().flat_map(|(_, whole)| &whole.processes).collect();
        processes.sort_by_key(|process| Reverse(self.sort.key(process)));
        processes
    }
}
