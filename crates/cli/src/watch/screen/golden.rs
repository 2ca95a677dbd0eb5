//! Compares the drawn screen with a stored one.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trimtab_core::trace::{
    Comm, DeviceIndex, EventKind, FsIndex, TraceDevice, TraceEvent, TraceFileSystem, TraceHeader,
};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_observe::watch::Watch;

use super::draw::{Palette, draw};
use super::state::{Next, State};

fn event(kind: EventKind, block: u64, blocks: u64, process: &[u8]) -> TraceEvent {
    TraceEvent {
        at: Nanos(0),
        device: DeviceIndex(0),
        kind,
        extent: Extent::at(Bytes(block * 4096), Bytes(blocks * 4096)),
        latency: kind.is_request().then_some(Nanos(50_000 * blocks)),
        process: Comm::new(process),
        error: 0,
        fs: (!kind.is_request()).then_some(FsIndex(0)),
    }
}

/// Three seconds of a machine with two disks; on one, ever more files are deleted.
fn state(lost: u64) -> State {
    let device = |name: &str| TraceDevice { name: name.to_owned(), ..TraceDevice::default() };
    let file_system = TraceFileSystem {
        kind: "ext4".to_owned(),
        mount_point: "/home".to_owned(),
        options: "rw,discard".to_owned(),
        source: "/dev/nvme0n1p2".to_owned(),
    };
    let mut header = TraceHeader::new("record");
    header.devices = vec![device("nvme0n1"), device("sda")];
    header.file_systems = vec![file_system];
    header.lost = lost;
    let (mut watch, mut state) = (Watch::default(), State::new(Duration::from_secs(1)));
    for second in 1..=3 {
        for file in 0..second * 10 {
            watch.record(&event(EventKind::Free, file * 10, 2 + file % 4, b"rm"));
            watch.record(&event(EventKind::Write, 5000 + file, 1, b"jbd2/nvme0n1p2"));
            if file % 2 == 0 {
                watch.record(&event(EventKind::Discard, file * 10, 2 + file % 4, b"jbd2/nvme0n1p2"));
            }
        }
        let now = Nanos(second * 1_000_000_000);
        let latest = watch.interval(&header, now);
        state.update(latest, watch.summary(&header, now));
    }
    state
}

fn drawn(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, &Palette::PLAIN)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n")
        .collect()
}

fn press(state: &mut State, code: KeyCode) -> Next {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn screen_equals_the_stored_one() {
    let screen = drawn(&state(0), 80, 24);
    assert_eq!(screen, include_str!("golden.txt"), "it is now:\n{screen}");
}

#[test]
fn lost_events_are_always_shown() {
    for (width, height) in [(80, 24), (60, 12)] {
        let screen = drawn(&state(17), width, height);
        assert!(screen.contains("17 events lost: all figures are too low"), "{screen}");
    }
}

#[test]
fn screen_is_drawn_at_any_size() {
    for (width, height) in [(1, 1), (10, 3), (40, 8), (79, 23), (300, 100)] {
        drawn(&state(1), width, height);
        drawn(&State::new(Duration::from_secs(1)), width, height);
    }
}

#[test]
fn keys_move_pause_and_quit() {
    let mut state = state(0);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Down);
    assert!(drawn(&state, 80, 24).contains("discards/s of sda: now 0,"));
    press(&mut state, KeyCode::Up);
    press(&mut state, KeyCode::Up);
    assert!(drawn(&state, 80, 24).contains("discards/s of nvme0n1: now 15, peak 15"));
    assert_eq!(state.processes()[0].name, "jbd2/nvme0n1p2");
    press(&mut state, KeyCode::Right);
    press(&mut state, KeyCode::Right);
    assert!(drawn(&state, 80, 24).contains("by frees"));
    assert_eq!(state.processes()[0].name, "rm");
    press(&mut state, KeyCode::Char('p'));
    let (latest, whole) = state.reports.clone().unwrap();
    assert!(!state.update(latest, whole), "what is paused stays as it is");
    assert!(drawn(&state, 80, 24).contains("PAUSED"));
    assert_eq!(press(&mut state, KeyCode::Char('c')), Next::Redraw);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Next::Quit);
    assert_eq!(state.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::Quit);
}
