//! Draws the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState};
use trimtab_core::Bytes;
use trimtab_lab::watch::{DeviceReport, FileSystemReport, ProcessReport, Report};
use trimtab_report::printable;

use super::state::State;
use crate::watch::figures::{latency, rate, size, size_of};
use crate::watch::summary::name;

/// The styles of the screen.
pub struct Palette {
    /// Curves and bars.
    mark: Style,
    /// What must not be overlooked.
    alarm: Style,
    /// What explains.
    quiet: Style,
}

impl Palette {
    pub const COLOURS: Self = Self {
        mark: Style::new().fg(Color::Cyan),
        alarm: Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        quiet: Style::new().fg(Color::DarkGray),
    };
    pub const PLAIN: Self =
        Self { mark: Style::new(), alarm: Style::new().add_modifier(Modifier::BOLD), quiet: Style::new() };
}

/// A column: its heading, and the figure below it.
type Column<T> = (&'static str, fn(&T) -> String);

/// Columns of figures; where the screen is too narrow, the last ones are left out.
const OF_DEVICE: [Column<DeviceReport>; 11] = [
    ("DISC/S", |device| rate(device.discards.per_s)),
    ("B/S", |device| size(device.discards.bytes_per_s)),
    ("MEAN", |device| size_of(device.discards.mean_bytes)),
    ("P50", |device| latency(device.discards.latency, |latency| latency.p50_ns)),
    ("P99", |device| latency(device.discards.latency, |latency| latency.p99_ns)),
    ("WRIT/S", |device| rate(device.writes.per_s)),
    ("B/S", |device| size(device.writes.bytes_per_s)),
    ("READ/S", |device| rate(device.reads.per_s)),
    ("B/S", |device| size(device.reads.bytes_per_s)),
    ("W P99", |device| latency(device.writes.latency, |latency| latency.p99_ns)),
    ("R P99", |device| latency(device.reads.latency, |latency| latency.p99_ns)),
];
const OF_PROCESS: [Column<ProcessReport>; 6] = [
    ("DISC", |process| process.discards.to_string()),
    ("B", |process| size(process.discard_bytes.0 as f64)),
    ("FREES", |process| process.frees.to_string()),
    ("B", |process| size(process.free_bytes.0 as f64)),
    ("WRITES", |process| size(process.write_bytes.0 as f64)),
    ("READS", |process| size(process.read_bytes.0 as f64)),
];
/// The width of a name, and of a figure.
const NAME: u16 = 12;
const FIGURE: u16 = 6;

/// The most lines that devices and file systems get.
const DEVICES: usize = 8;
const FILE_SYSTEMS: usize = 6;

/// Draws all of it.
pub fn draw(frame: &mut Frame, state: &State, palette: &Palette) {
    let Some((latest, whole)) = &state.reports else {
        let waiting = format!("trimtab watch: the first interval takes {}", time(state));
        frame.render_widget(Paragraph::new(waiting), frame.area());
        return;
    };
    let devices = latest.devices.len().min(DEVICES) as u16;
    let file_systems = latest.file_systems.len().min(FILE_SYSTEMS) as u16;
    let alarms = alarms(whole);
    let [head, alarm, curve, table, mounts, rest, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(alarms.len() as u16),
        Constraint::Length(6),
        Constraint::Length(devices + 3),
        Constraint::Length(if file_systems > 0 { file_systems + 3 } else { 0 }),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [sizes, processes] = Layout::horizontal([Constraint::Percentage(38), Constraint::Min(0)]).areas(rest);
    frame.render_widget(title(state, whole), head);
    let alarms = alarms.into_iter().map(|text| Line::styled(text, palette.alarm));
    frame.render_widget(Paragraph::new(alarms.collect::<Vec<_>>()), alarm);
    draw_curve(frame, curve, state, palette);
    draw_devices(frame, table, state, latest, palette);
    draw_file_systems(frame, mounts, latest, palette);
    draw_sizes(frame, sizes, state, palette);
    draw_processes(frame, processes, state, palette);
    let keys_line = "q quit   p pause   up/down device   left/right sort processes";
    frame.render_widget(Line::styled(keys_line, palette.quiet), keys);
}

fn time(state: &State) -> String {
    humantime::format_duration(state.interval).to_string()
}

fn title<'a>(state: &State, whole: &Report) -> Line<'a> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![
        Span::styled("trimtab watch", bold),
        Span::raw(format!("  {:.0} s, every {}", whole.wall_s, time(state))),
    ];
    if state.paused {
        spans.push(Span::styled("  PAUSED", bold));
    }
    Line::from(spans)
}

/// What the user has to know to trust the figures.
fn alarms(whole: &Report) -> Vec<String> {
    let lost = (whole.lost > 0).then(|| format!("{} events lost: all figures are too low", whole.lost));
    lost.into_iter().chain(whole.gaps.iter().map(|gap| printable(gap))).collect()
}

fn draw_curve(frame: &mut Frame, area: Rect, state: &State, palette: &Palette) {
    let Some((latest, whole)) = state.device() else { return };
    let curve = state.curve(usize::from(area.width.saturating_sub(2)));
    let peak = curve.iter().copied().fold(0.0, f64::max);
    let title = format!(
        " discards/s of {}: now {}, peak {}; {} in all, {} ",
        latest.name,
        rate(latest.discards.per_s),
        rate(peak),
        whole.discards.count,
        whole.discards.bytes
    );
    // The curve has whole numbers only: a tenth of a discard a second is still seen.
    let tenths = curve.iter().map(|a_second| (a_second * 10.0).ceil() as u64);
    let sparkline = Sparkline::default().data(tenths).style(palette.mark);
    frame.render_widget(sparkline.block(Block::bordered().title(title)), area);
}

fn draw_devices(frame: &mut Frame, area: Rect, state: &State, latest: &Report, palette: &Palette) {
    let columns = fitting(&OF_DEVICE, area);
    let head = columns.iter().map(|(head, _)| format!("{head:>6}"));
    let head = Row::new(std::iter::once("DEVICE".to_owned()).chain(head)).style(palette.quiet);
    let rows = latest.devices.iter().map(|device| {
        let figures = columns.iter().map(|(_, figure)| format!("{:>6}", figure(device)));
        Row::new(std::iter::once(device.name.clone()).chain(figures))
    });
    let table = Table::new(rows, widths(columns))
        .header(head)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(" devices "));
    let mut picked = TableState::new().with_selected(state.selected);
    frame.render_stateful_widget(table, area, &mut picked);
}

fn draw_file_systems(frame: &mut Frame, area: Rect, latest: &Report, palette: &Palette) {
    let rows = latest.file_systems.iter().map(|fs| {
        let figures = [rate(fs.frees.per_s), size(fs.frees.bytes_per_s), size_of(fs.frees.mean_bytes)];
        let cells = [fs.device.clone(), printable(&format!("{} {}", fs.kind, fs.mount_point))];
        let figures = figures.map(|figure| format!("{figure:>6}"));
        Row::new(cells.into_iter().chain(figures).chain([pending(fs)]).map(Cell::from))
    });
    let head = ["DEVICE", "FILE SYSTEM", "FREE/S", "   B/S", "  MEAN", "FREED, NOT DISCARDED"];
    let widths = [
        Constraint::Length(NAME),
        Constraint::Fill(1),
        Constraint::Length(FIGURE),
        Constraint::Length(FIGURE),
        Constraint::Length(FIGURE),
        Constraint::Fill(1),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(palette.quiet))
        .block(Block::bordered().title(" file systems "));
    frame.render_widget(table, area);
}

/// What is pending, and whether some of it is followed no more.
fn pending(fs: &FileSystemReport) -> String {
    let pending = &fs.pending;
    if pending.ranges == 0 && pending.let_go_bytes == Bytes::ZERO {
        return "nothing".to_owned();
    }
    let held = format!("{} in {} ranges", pending.bytes, pending.ranges);
    if pending.let_go_bytes == Bytes::ZERO {
        held
    } else {
        format!("over {held} (too many: those below {} let go)", pending.coarsened_below_bytes)
    }
}

fn draw_sizes(frame: &mut Frame, area: Rect, state: &State, palette: &Palette) {
    let Some((_, whole)) = state.device() else { return };
    let block = Block::bordered().title(format!(" sizes of discards of {} ", whole.name));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let buckets: Vec<_> = whole.discards.sizes.buckets().collect();
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    let room = u64::from(inner.width.saturating_sub(16));
    let lines = buckets.iter().map(|bucket| {
        let bar = "█".repeat((bucket.count * room).div_ceil(most) as usize);
        let size = format!("{:>5}+ ", size(bucket.from_bytes.0 as f64));
        Line::from(vec![
            Span::raw(size),
            Span::styled(bar, palette.mark),
            Span::raw(format!(" {}", bucket.count)),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
}

fn draw_processes(frame: &mut Frame, area: Rect, state: &State, palette: &Palette) {
    let columns = fitting(&OF_PROCESS, area);
    let head = columns.iter().map(|(head, _)| format!("{head:>6}"));
    let head = Row::new(std::iter::once("PROCESS".to_owned()).chain(head)).style(palette.quiet);
    let rows = state.processes().into_iter().map(|process| {
        let figures = columns.iter().map(|(_, figure)| format!("{:>6}", figure(process)));
        Row::new(std::iter::once(name(process)).chain(figures))
    });
    let title = format!(" since the start, by {} ", state.sort.name());
    let table = Table::new(rows, widths(columns)).header(head).block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

/// The columns that fit beside a name into a bordered area.
fn fitting<T>(columns: &[Column<T>], area: Rect) -> &[Column<T>] {
    let room = area.width.saturating_sub(2 + NAME);
    &columns[..usize::from(room / (FIGURE + 1)).min(columns.len())]
}

fn widths<T>(columns: &[Column<T>]) -> impl Iterator<Item = Constraint> {
    std::iter::once(Constraint::Length(NAME)).chain(columns.iter().map(|_| Constraint::Length(FIGURE)))
}
