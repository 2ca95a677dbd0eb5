//! The course of a run: latency of the probe, writes and discards over time, in one picture a
//! policy. All pictures of a situation have the same scales.

use trimtab_core::document::{CompareDocument, Interval, Run, Step, StepKind};

use super::sane::sane;
use super::situation::{Row, Situation};
use super::summary::FileSystem;
use super::words;
use crate::axis::{Axis, tick_label};
use crate::chart::policy_class;
use crate::html::escape;
use crate::number::{count, latency, significant};
use crate::svg::{Anchor, Drawing, Point};

// All lengths are in user units of the view box; a character of a name is at most about 7.6 wide.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 10.0;
const READS: Strip = Strip { top: 22.0, base: 130.0 };
const WRITES: Strip = Strip { top: 156.0, base: 204.0 };
const DISCARDS: Strip = Strip { top: 230.0, base: 260.0 };
const CHARACTER: f64 = 7.6;
/// The most points along the time axis.
const COLUMNS: usize = 240;
/// The least height of a discard, and the least width of a trim, that can be seen.
const VISIBLE: f64 = 2.0;

/// The part of the picture that one figure has.
struct Strip {
    top: f64,
    base: f64,
}

/// The scales that all pictures of a situation share.
struct Frame {
    /// The time axis, in seconds divided by `unit`.
    time: Axis,
    unit: f64,
    unit_name: &'static str,
    /// Microseconds of a read.
    reads: Option<Axis>,
    /// MiB/s.
    writes: Axis,
    /// Discards per second.
    discards: Axis,
}

/// A run in as many points as a picture has columns.
struct Course {
    points: Vec<Sampled>,
    /// The seconds of a point.
    width_s: f64,
}

#[derive(Default)]
struct Sampled {
    read_us: Option<f64>,
    written_mib_s: f64,
    discards_s: f64,
}

impl Strip {
    fn up(&self, axis: &Axis, value: f64) -> f64 {
        self.base - axis.part(value).clamp(0.0, 1.0) * (self.base - self.top)
    }
}

impl Course {
    /// The course of `run` for pictures that show `span_s` seconds; none without a timeline.
    fn of(run: &Run, span_s: f64) -> Option<Self> {
        let interval_s = sane(run.timeline.interval_s).filter(|length| *length > 0.0)?;
        let each = ((span_s / interval_s / COLUMNS as f64).ceil() as usize).max(1);
        let sampled = |intervals: &[Interval]| {
            let seconds = intervals.len() as f64 * interval_s;
            let sum = |of: fn(&Interval) -> f64| intervals.iter().map(of).sum::<f64>() / seconds;
            let reads = intervals.iter().filter_map(|interval| sane(interval.probe_max_s?));
            Sampled {
                read_us: reads.max_by(f64::total_cmp).filter(|read| *read > 0.0).map(|read| read * 1e6),
                written_mib_s: sum(|interval| interval.written.mib()),
                discards_s: sum(|interval| interval.discards as f64),
            }
        };
        Some(Self {
            points: run.timeline.intervals.chunks(each).map(sampled).collect(),
            width_s: each as f64 * interval_s,
        })
    }
}

impl Course {
    /// The picture with the heading `title` in words.
    fn words(&self, title: &str) -> String {
        let reads = self.points.iter().filter_map(|point| point.read_us);
        let read = reads.max_by(f64::total_cmp).map(|us| format!(", longest read {}", latency(us)));
        let most = |of: fn(&Sampled) -> f64| self.points.iter().map(of).fold(0.0, f64::max);
        format!(
            "{title}: reads of others, writes and discards over {} s{}, at most {} MiB/s written and {} discards/s",
            significant(self.points.len() as f64 * self.width_s),
            read.unwrap_or_default(),
            significant(most(|point| point.written_mib_s)),
            significant(most(|point| point.discards_s)),
        )
    }
}

impl Frame {
    fn of(courses: &[Course], span_s: f64) -> Self {
        let points = || courses.iter().flat_map(|course| &course.points);
        let (unit, unit_name) = match span_s {
            ..180.0 => (1.0, "s"),
            ..10_800.0 => (60.0, "min"),
            ..259_200.0 => (3600.0, "h"),
            _ => (86_400.0, "days"),
        };
        let reads = || points().filter_map(|point| point.read_us);
        let ends = reads().min_by(f64::total_cmp).zip(reads().max_by(f64::total_cmp));
        let linear = |of: fn(&Sampled) -> f64| {
            let most = points().map(of).filter_map(sane).fold(0.0, f64::max);
            Axis::linear(if most > 0.0 { most * 1.05 } else { 1.0 })
        };
        Self {
            time: Axis::linear(span_s / unit),
            unit,
            unit_name,
            reads: ends.map(|(least, most)| Axis::log(least, most)),
            writes: linear(|point| point.written_mib_s),
            discards: linear(|point| point.discards_s),
        }
    }

    /// How far right the moment `seconds` is.
    fn across(&self, seconds: f64) -> f64 {
        LEFT + self.time.part(seconds / self.unit).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }
}

/// The legend of a situation's pictures.
pub fn legend(situation: &Situation) -> String {
    let trims = if situation.rows.iter().any(|row| row.trim_s.is_some()) {
        "; a red band is a FITRIM that runs"
    } else {
        ""
    };
    format!(
        "One run of each policy over time, all to the same scales. A dot is the longest read of the probe in an \
         interval; a grey ground is a pause{trims}."
    )
}

/// A picture for each policy of a situation, but for those that are only another run of none.
pub fn figures(document: &CompareDocument, fs: &FileSystem, situation: &Situation) -> String {
    let rows: Vec<&Row> = situation.rows.iter().filter(|row| !situation.is_as_none(row)).collect();
    let runs: Vec<(&Row, &Run)> = rows
        .into_iter()
        .filter_map(|row| Some((row, typical(&situation.runs_of(document, &fs.fs, row.policy))?)))
        .collect();
    let span_s = runs.iter().map(|(_, run)| end_s(run)).fold(0.0, f64::max);
    if span_s <= 0.0 {
        return String::new();
    }
    let drawn: Vec<(&Row, &Run, Course)> = runs
        .into_iter()
        .filter_map(|(row, run)| Some((row, run, Course::of(run, span_s)?)))
        .filter(|(.., course)| !course.points.is_empty())
        .collect();
    let (shown, courses): (Vec<(&Row, &Run)>, Vec<Course>) =
        drawn.into_iter().map(|(row, run, course)| ((row, run), course)).unzip();
    let frame = Frame::of(&courses, span_s);
    let policies = words::policies(document);
    let picture = |((row, run), course): (&(&Row, &Run), &Course)| {
        let class = policy_class(row.policy, &policies);
        let of = if row.runs > 1 { format!(", run {} of {}", run.run, row.runs) } else { String::new() };
        let title = format!("{}: {}{of}", fs.heading(situation), row.policy);
        let mut drawing = Drawing::default();
        frame.draw(&mut drawing, run, course, &class);
        format!(
            "<figure>\n<figcaption><i class=\"swatch {class}\"></i>{}</figcaption>\n{}</figure>\n",
            escape(&title),
            drawing.finish((WIDTH, HEIGHT), &course.words(&title))
        )
    };
    shown.iter().zip(&courses).map(picture).collect()
}

/// The run whose wait is the median of the runs of a policy.
fn typical<'a>(runs: &[&'a Run]) -> Option<&'a Run> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|a, b| a.waited_s().total_cmp(&b.waited_s()));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// When a run's last step or interval ends, in seconds.
fn end_s(run: &Run) -> f64 {
    let steps = run.steps.iter().filter_map(|step| sane(step.start_s + step.length_s));
    let intervals = sane(run.timeline.interval_s * run.timeline.intervals.len() as f64);
    steps.chain(intervals).fold(0.0, f64::max)
}

impl Frame {
    fn draw(&self, drawing: &mut Drawing, run: &Run, course: &Course, class: &str) {
        self.draw_grounds(drawing, run);
        self.draw_scales(drawing);
        self.draw_reads(drawing, course, class);
        self.draw_area(drawing, course, &WRITES, &self.writes, "written", |point| point.written_mib_s);
        self.draw_discards(drawing, course);
        self.draw_steps(drawing, run);
    }

    /// The pauses and the trims, behind everything.
    fn draw_grounds(&self, drawing: &mut Drawing, run: &Run) {
        let mut ground = |class: &str, start_s: f64, length_s: f64, least: f64, note: &str| {
            let (Some(start), Some(end)) = (sane(start_s), sane(start_s + length_s)) else { return };
            let (left, right) = (self.across(start), self.across(end));
            let size = ((right - left).max(least), DISCARDS.base - READS.top);
            drawing.bar(class, (left, READS.top), size, note);
        };
        for step in run.steps.iter().filter(|step| step.kind == StepKind::Pause) {
            ground("pause", step.start_s, step.length_s, 0.0, &format!("{}: a pause", step.name));
        }
        for trim in &run.trims {
            let length = sane(trim.length_s).map_or(String::new(), |length| words::time(length, 1e-6));
            ground("fitrim", trim.start_s, trim.length_s, VISIBLE, &format!("FITRIM: {length}"));
        }
    }

    fn draw_scales(&self, drawing: &mut Drawing) {
        let heading = |drawing: &mut Drawing, strip: &Strip, text: &str| {
            drawing.text("", (LEFT, strip.top - 7.0), Anchor::Start, text);
            drawing.line("base", (LEFT, strip.base), (RIGHT, strip.base));
        };
        let tick = |drawing: &mut Drawing, strip: &Strip, axis: &Axis, value: f64, label: &str| {
            let y = strip.up(axis, value);
            drawing.line("grid", (LEFT, y), (RIGHT, y));
            drawing.text("axis", (LEFT - 6.0, y + 4.0), Anchor::End, label);
        };
        if let Some(reads) = &self.reads {
            for us in decades(reads) {
                tick(drawing, &READS, reads, us, &read_label(us));
            }
            heading(drawing, &READS, "longest read of the probe (log scale)");
        } else {
            heading(drawing, &READS, "no probe");
        }
        for (strip, axis, text) in
            [(&WRITES, &self.writes, "written, MiB/s"), (&DISCARDS, &self.discards, "discards per second")]
        {
            if let Some(most) = axis.ticks().into_iter().rfind(|tick| axis.part(*tick) <= 1.0) {
                tick(drawing, strip, axis, most, &tick_label(most));
            }
            drawing.text("axis", (LEFT - 6.0, strip.base + 4.0), Anchor::End, "0");
            heading(drawing, strip, text);
        }
        for tick in self.time.ticks() {
            let x = self.across(tick * self.unit);
            drawing.line("base", (x, DISCARDS.base), (x, DISCARDS.base + 4.0));
            drawing.text("axis", (x, DISCARDS.base + 18.0), Anchor::Middle, &tick_label(tick));
        }
        let unit = format!("{} of drive time", self.unit_name);
        drawing.text("axis", (RIGHT, HEIGHT - 4.0), Anchor::End, &unit);
    }

    fn draw_reads(&self, drawing: &mut Drawing, course: &Course, class: &str) {
        let Some(reads) = &self.reads else { return };
        let dots: Vec<Point> = (0_u32..)
            .zip(&course.points)
            .filter_map(|(place, point)| {
                let middle = (f64::from(place) + 0.5) * course.width_s;
                Some((self.across(middle), READS.up(reads, point.read_us?)))
            })
            .collect();
        drawing.dots(class, &dots);
    }

    fn draw_area(
        &self,
        drawing: &mut Drawing,
        course: &Course,
        strip: &Strip,
        axis: &Axis,
        class: &str,
        of: fn(&Sampled) -> f64,
    ) {
        let mut corners = vec![(LEFT, strip.base)];
        for (place, point) in (0_u32..).zip(&course.points) {
            let y = strip.up(axis, sane(of(point)).unwrap_or(0.0));
            let [left, right] =
                [0.0, 1.0].map(|edge| self.across((f64::from(place) + edge) * course.width_s));
            corners.extend([(left, y), (right, y)]);
        }
        let end = corners.last().map_or(LEFT, |(x, _)| *x);
        corners.push((end, strip.base));
        drawing.area(class, &corners, "");
    }

    /// A bar for every interval with a discard, high enough to be seen.
    fn draw_discards(&self, drawing: &mut Drawing, course: &Course) {
        for (place, point) in (0_u32..).zip(&course.points) {
            let Some(rate) = sane(point.discards_s).filter(|rate| *rate > 0.0) else { continue };
            let y = DISCARDS.up(&self.discards, rate).min(DISCARDS.base - VISIBLE);
            let start_s = f64::from(place) * course.width_s;
            let (left, right) = (self.across(start_s), self.across(start_s + course.width_s));
            let size = ((right - left).max(1.0), DISCARDS.base - y);
            let number = count((rate * course.width_s).clamp(1.0, 1e9));
            let note = format!("{number} discards from {} s on", significant(start_s));
            drawing.bar("discarded", (left, y), size, &note);
        }
    }

    /// The steps' names below the time axis, in two rows, the longest steps' first: names that
    /// have no space show under the pointer only.
    fn draw_steps(&self, drawing: &mut Drawing, run: &Run) {
        let place = |step: &Step| {
            let (start, end) = (sane(step.start_s)?, sane(step.start_s + step.length_s)?);
            Some((self.across(start), self.across(end)))
        };
        let mut steps: Vec<(&Step, Point)> =
            run.steps.iter().filter_map(|step| Some((step, place(step)?))).collect();
        for (step, (left, right)) in &steps {
            let length = sane(step.length_s).map_or(String::new(), |length| words::time(length, 1e-6));
            for strip in [&READS, &WRITES, &DISCARDS] {
                drawing.line("grid", (*left, strip.top), (*left, strip.base));
            }
            let note = format!("{}: {length}", step.name);
            let size = ((right - left).max(VISIBLE), DISCARDS.base - READS.top);
            drawing.bar("step", (*left, READS.top), size, &note);
        }
        steps.sort_by(|(_, a), (_, b)| (b.1 - b.0).total_cmp(&(a.1 - a.0)));
        let mut taken: [Vec<Point>; 2] = [Vec::new(), Vec::new()];
        for (step, (left, right)) in steps {
            let half = step.name.chars().count() as f64 * CHARACTER / 2.0;
            if 2.0 * half > RIGHT - LEFT {
                continue;
            }
            let middle = f64::midpoint(left, right).clamp(LEFT + half, RIGHT - half);
            let (from, to) = (middle - half, middle + half);
            let free =
                |row: &Vec<Point>| row.iter().all(|(start, end)| to + 6.0 < *start || *end + 6.0 < from);
            let Some(row) = taken.iter().position(free) else { continue };
            taken[row].push((from, to));
            let y = DISCARDS.base + 36.0 + 15.0 * row as f64;
            drawing.text("axis", (middle, y), Anchor::Middle, &step.name);
        }
    }
}

/// The powers of ten along a logarithmic axis, or all its ticks where there are fewer than two.
fn decades(axis: &Axis) -> Vec<f64> {
    let ticks = axis.ticks();
    let is_decade = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
    let decades: Vec<f64> = ticks.iter().copied().filter(is_decade).collect();
    if decades.len() < 2 { ticks } else { decades }
}

fn read_label(us: f64) -> String {
    let text = latency(us);
    match text.split_once(' ') {
        Some((figure, unit)) if figure.contains('.') => {
            format!("{} {unit}", figure.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}
