//! Draws the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState};
use trimtab_core::Bytes;
use trimtab_observe::watch::{DeviceReport, FileSystemReport, ProcessReport, Report};
use trimtab_report::printable;

use super::state::State;
use crate::tallies::counted;
use crate::watch::figures::{count, latency, rate, size, size_of};
use crate::watch::summary::name;

/// The styles of the screen.
pub struct Palette {
    /// Curves and bars.
    mark: Style,
    /// Alarms.
    alarm: Style,
    /// Explanations.
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

/// A column: its heading, its width, and the figure below it.
type Column<T> = (&'static str, u16, fn(&T) -> String);

/// Columns of figures; on a narrow screen the last ones are left out.
const OF_DEVICE: [Column<DeviceReport>; 11] = [
    ("DISC/S", 6, |device| rate(device.discards.per_s)),
    ("B/S", 7, |device| size(device.discards.bytes_per_s)),
    ("MEAN", 7, |device| size_of(device.discards.mean_bytes)),
    ("P50", 6, |device| latency(device.discards.latency, |latency| latency.p50_ns)),
    ("P99", 6, |device| latency(device.discards.latency, |latency| latency.p99_ns)),
    ("WRIT/S", 6, |device| rate(device.writes.per_s)),
    ("B/S", 7, |device| size(device.writes.bytes_per_s)),
    ("READ/S", 6, |device| rate(device.reads.per_s)),
    ("B/S", 7, |device| size(device.reads.bytes_per_s)),
    ("W P99", 6, |device| latency(device.writes.latency, |latency| latency.p99_ns)),
    ("R P99", 6, |device| latency(device.reads.latency, |latency| latency.p99_ns)),
];
const OF_PROCESS: [Column<ProcessReport>; 6] = [
    ("DISC", 6, |process| count(process.discards)),
    ("B", 7, |process| size(process.discard_bytes.0 as f64)),
    ("FREES", 6, |process| count(process.frees)),
    ("B", 7, |process| size(process.free_bytes.0 as f64)),
    ("WRITES", 7, |process| size(process.write_bytes.0 as f64)),
    ("READS", 7, |process| size(process.read_bytes.0 as f64)),
];
/// The widths of a device's name, and of a process's, which has 15 characters at most.
const DEVICE: u16 = 11;
const PROCESS: u16 = 15;

/// The most lines of devices and of file systems.
const DEVICES: usize = 8;
const FILE_SYSTEMS: usize = 6;

/// Draws the whole screen.
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
    let [sizes, processes] = Layout::horizontal([Constraint::Percentage(30), Constraint::Min(0)]).areas(rest);
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

/// Returns the reasons why figures may be wrong.
fn alarms(whole: &Report) -> Vec<String> {
    let lost =
        (whole.lost > 0).then(|| format!("{} lost: all figures are too low", counted(whole.lost, "event")));
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
    // The curve takes whole numbers: count tenths of a discard per second.
    let tenths = curve.iter().map(|a_second| (a_second * 10.0).ceil() as u64);
    let sparkline = Sparkline::default().data(tenths).style(palette.mark);
    frame.render_widget(sparkline.block(Block::bordered().title(title)), area);
}

fn draw_devices(frame: &mut Frame, area: Rect, state: &State, latest: &Report, palette: &Palette) {
    let columns = fitting(&OF_DEVICE, DEVICE, area);
    let rows = latest.devices.iter().map(|device| row(device.name.clone(), device, columns));
    let table = Table::new(rows, widths(DEVICE, columns))
        .header(head("DEVICE", columns).style(palette.quiet))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(" devices "));
    let mut picked = TableState::new().with_selected(state.selected);
    frame.render_stateful_widget(table, area, &mut picked);
}

fn draw_file_systems(frame: &mut Frame, area: Rect, latest: &Report, palette: &Palette) {
    let rows = latest.file_systems.iter().map(|fs| {
        let figures = [rate(fs.frees.per_s), size(fs.frees.bytes_per_s), size_of(fs.frees.mean_bytes)];
        let cells = [fs.device.clone(), printable(&format!("{} {}", fs.kind, fs.mount_point))];
        let figures = figures.map(|figure| format!("{figure:>7}"));
        Row::new(cells.into_iter().chain(figures).chain([pending(fs)]).map(Cell::from))
    });
    let head = ["DEVICE", "FILE SYSTEM", " FREE/S", "    B/S", "   MEAN", "FREED, NOT DISCARDED"];
    let widths = [
        Constraint::Length(DEVICE),
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Fill(1),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(palette.quiet))
        .block(Block::bordered().title(" file systems "));
    frame.render_widget(table, area);
}

/// Formats the pending extents, and whether small ones have been dropped.
fn pending(fs: &FileSystemReport) -> String {
    let pending = &fs.pending;
    if pending.ranges == 0 && pending.let_go_bytes == Bytes::ZERO {
        return "nothing".to_owned();
    }
    let held = format!("{} in {}", pending.bytes, counted(pending.ranges, "range"));
    if pending.let_go_bytes == Bytes::ZERO {
        held
    } else {
        format!("over {held} (too many: dropped those below {})", pending.coarsened_below_bytes)
    }
}

fn draw_sizes(frame: &mut Frame, area: Rect, state: &State, palette: &Palette) {
    let Some((_, whole)) = state.device() else { return };
    let block = Block::bordered().title(" sizes of discards ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let buckets: Vec<_> = whole.discards.sizes.buckets().collect();
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    let room = u64::from(inner.width.saturating_sub(16));
    let lines = buckets.iter().map(|bucket| {
        let bar = "█".repeat((bucket.count * room).div_ceil(most) as usize);
        let size = format!("{:>7}+ ", size(bucket.from_bytes.0 as f64));
        Line::from(vec![
            Span::raw(size),
            Span::styled(bar, palette.mark),
            Span::raw(format!(" {}", count(bucket.count))),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
}

fn draw_processes(frame: &mut Frame, area: Rect, state: &State, palette: &Palette) {
    let columns = fitting(&OF_PROCESS, PROCESS, area);
    let rows = state.processes().into_iter().map(|process| row(name(process), process, columns));
    let title = format!(" since the start, by {} ", state.sort.name());
    let table = Table::new(rows, widths(PROCESS, columns))
        .header(head("PROCESS", columns).style(palette.quiet))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

/// Returns the columns that fit into a bordered area beside a name of this width.
fn fitting<T>(columns: &[Column<T>], name: u16, area: Rect) -> &[Column<T>] {
    let mut taken = 2 + name;
    let fit = columns.iter().take_while(|(_, width, _)| {
        taken += 1 + width;
        taken <= area.width
    });
    &columns[..fit.count()]
}

fn head<'a, T>(name: &str, columns: &[Column<T>]) -> Row<'a> {
    let heads = columns.iter().map(|(head, width, _)| right(head, *width));
    Row::new(std::iter::once(name.to_owned()).chain(heads))
}

fn row<'a, T>(name: String, of: &T, columns: &[Column<T>]) -> Row<'a> {
    let figures = columns.iter().map(|(_, width, figure)| right(&figure(of), *width));
    Row::new(std::iter::once(name).chain(figures))
}

fn right(text: &str, width: u16) -> String {
    format!("{text:>width$}", width = usize::from(width))
}

fn widths<T>(name: u16, columns: &[Column<T>]) -> impl Iterator<Item = Constraint> {
    let of_columns = columns.iter().map(|(_, width, _)| *width);
    std::iter::once(name).chain(of_columns).map(Constraint::Length)
}
