//! The arena: every policy on every recorded trace, drive and think time, in model time. It prints where the
//! policy `smart` loses, and writes the results, a page and a picture.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Instant, SystemTime};

use trimtab_core::Nanos;
use trimtab_core::document::arena::{ARENA_SCHEMA, ArenaCell, ArenaDocument, ArenaRun};
use trimtab_core::document::sim::Clocks;
use trimtab_core::profile::{Profile, builtin};
use trimtab_report::arena;
use trimtab_sim::arena::{ArenaTrace, Contender};

const USAGE: &str = "\
usage: cargo bench -p trimtab-sim --bench arena -- DIR [OPTION]...
       cargo bench -p trimtab-sim --bench arena -- --from RESULT [OPTION]...

DIR holds the traces that arena/record makes: SET/NAME.parquet, where SET is tuning, verdict or holdout.

  --set SET          only the traces of this set
  --trace NAME,...   only these traces
  --profile NAME,... only these profiles [default: all built-in ones]
  --think FACTOR,... think times, as multiples of the recorded ones [default: 0,0.1,1,10]
  --quick            three profiles, think times 0 and 1
  --policy NAME,...  replay only these policies; with --from, the others are taken from RESULT
  --passes N         replay each trace so many times on the same drive [default: 1]
  --believe NAME     let smart go by this profile on all drives, instead of that of the drive
  --cost-factor N    let smart believe that discards take N times as long as by the profile that it goes by
  --against RESULT   print smart's waits over those in an earlier result.json
  --all              list all losing cells, not the worst ten
  --out DIR          write result.json, index.html, arena.svg and arena-ideal.svg there
  --from RESULT      an earlier result.json";

/// The sets of traces: those that the policy was tuned with, those that were replayed after each change, and those that
/// were first replayed when it was final.
const SETS: [&str; 3] = ["tuning", "verdict", "holdout"];

/// The profiles of `--quick`: a slow discard, a queued one, a fast one.
const QUICK: &str = "ocz-agility-3,samsung-870-evo,nvme-tlc";

#[derive(Default)]
struct Options {
    traces: Option<PathBuf>,
    set: Option<String>,
    names: Option<Vec<String>>,
    profiles: Option<Vec<String>>,
    think_scales: Option<Vec<f64>>,
    policies: Option<Vec<Contender>>,
    passes: Option<u32>,
    believed: Option<String>,
    cost_factor: Option<f64>,
    against: Option<PathBuf>,
    lists_all: bool,
    out: Option<PathBuf>,
    from: Option<PathBuf>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self::default();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"));
            match name.as_str() {
                // Cargo's own.
                "--bench" => {}
                "--set" => options.set = Some(value()?),
                "--trace" => options.names = Some(words(&value()?)),
                "--profile" => options.profiles = Some(words(&value()?)),
                "--think" => options.think_scales = Some(numbers(&value()?)?),
                "--policy" => {
                    let policies = words(&value()?).iter().map(|name| name.parse()).collect::<Result<_, _>>();
                    options.policies = Some(policies?);
                }
                "--quick" => {
                    options.profiles.get_or_insert_with(|| words(QUICK));
                    options.think_scales.get_or_insert_with(|| vec![0.0, 1.0]);
                }
                "--believe" => options.believed = Some(value()?),
                "--cost-factor" => options.cost_factor = Some(value()?.parse()?),
                "--against" => options.against = Some(value()?.into()),
                "--passes" => options.passes = Some(value()?.parse()?),
                "--all" => options.lists_all = true,
                "--out" => options.out = Some(value()?.into()),
                "--from" => options.from = Some(value()?.into()),
                _ if !name.starts_with('-') && options.traces.is_none() => options.traces = Some(name.into()),
                _ => return Err(format!("{name} is not an argument\n{USAGE}").into()),
            }
        }
        if options.traces.is_none() && options.from.is_none() {
            return Err(USAGE.into());
        }
        Ok(options)
    }

    /// The profiles to replay on.
    fn profiles(&self) -> Result<Vec<Profile>, Box<dyn Error>> {
        match &self.profiles {
            Some(names) => Ok(names.iter().map(|name| Profile::named(name)).collect::<Result<_, _>>()?),
            None => Ok(builtin()?),
        }
    }

    /// The profile that smart goes by on a drive that behaves like `profile`.
    fn believed(&self, profile: &Profile) -> Result<Profile, Box<dyn Error>> {
        let mut believed = self.believed.as_deref().map_or_else(|| Ok(profile.clone()), Profile::named)?;
        let factor = self.cost_factor.unwrap_or(1.0);
        let discard = &mut believed.discard;
        let costs = [&mut discard.command, &mut discard.range, &mut discard.per_gib];
        for cost in costs.into_iter().chain(&mut discard.per_mapped_gib) {
            cost.value = Nanos::from_seconds(cost.value.seconds() * factor);
        }
        Ok(believed)
    }

    /// Whether the results of `cell` are asked for.
    fn wants(&self, cell: &ArenaCell) -> bool {
        let among =
            |names: &Option<Vec<String>>, name: &String| names.as_ref().is_none_or(|it| it.contains(name));
        self.set.as_ref().is_none_or(|set| *set == cell.set)
            && among(&self.names, &cell.trace)
            && among(&self.profiles, &cell.profile)
            && self.think_scales.as_ref().is_none_or(|it| it.contains(&cell.think_scale))
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn numbers(text: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    let number = |word: &str| {
        let number: f64 = word.parse().map_err(|_| format!("--think {word} is not a number"))?;
        let most = Clocks::MOST_THINK_SCALE;
        if (0.0..=most).contains(&number) {
            Ok(number)
        } else {
            Err(format!("--think {word} is not between 0 and {most}"))
        }
    };
    Ok(text.split(',').map(number).collect::<Result<_, _>>()?)
}

fn main() {
    // As `cargo bench` of the whole workspace calls it.
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        println!("arena: left out without traces; make arena records and replays them");
        return;
    }
    if let Err(error) = run() {
        eprintln!("arena: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    if let Some(out) = &options.out {
        fs::create_dir_all(out)?;
    }
    let earlier = options.from.as_deref().map(read).transpose()?;
    let passes = options.passes.or(earlier.as_ref().map(|it| it.passes)).unwrap_or(1);
    if earlier.as_ref().is_some_and(|it| it.passes != passes) {
        return Err("--passes differs from that of the earlier result".into());
    }
    let mut document = ArenaDocument {
        schema: ARENA_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: std::env::args().collect(),
        passes,
        runs: Vec::new(),
    };
    if let Some(dir) = &options.traces {
        document.runs = fight(dir, &options, passes)?;
    }
    document.runs = joined(document.runs, earlier.map(|it| it.runs).unwrap_or_default());
    document.runs.retain(|run| options.wants(&run.cell));
    if let Some(out) = &options.out {
        fs::write(out.join("result.json"), serde_json::to_string(&document)?)?;
        fs::write(out.join("index.html"), arena::html(&document))?;
        for (name, image) in ["arena.svg", "arena-ideal.svg"].iter().zip(arena::images(&document)) {
            fs::write(out.join(name), image)?;
        }
        println!("Report: {}", out.join("index.html").display());
    }
    if let Some(path) = &options.against {
        compare(&document, &read(path)?);
    }
    let most = if options.lists_all { usize::MAX } else { 10 };
    print!("{}", arena::text(&document, most));
    Ok(())
}

fn read(path: &Path) -> Result<ArenaDocument, Box<dyn Error>> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let document: ArenaDocument =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    if document.schema != ARENA_SCHEMA {
        return Err(format!("{} has schema {}, not {ARENA_SCHEMA}", path.display(), document.schema).into());
    }
    Ok(document)
}

/// Prints how long the foreground waits with smart, over that in `earlier`.
fn compare(document: &ArenaDocument, earlier: &ArenaDocument) {
    let smart = |document: &ArenaDocument| -> HashMap<String, f64> {
        let runs = document.runs.iter().filter(|run| run.policy == "smart");
        runs.map(|run| (format!("{:?}", run.cell), run.waited_ns.0 as f64)).collect()
    };
    let before = smart(earlier);
    let ratios =
        smart(document).into_iter().filter_map(|(cell, wait)| Some((wait / before.get(&cell)?, cell)));
    let mut ratios: Vec<_> = ratios.filter(|(ratio, _)| ratio.is_finite()).collect();
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    let Some((worst, cell)) = ratios.last() else { return println!("No cell is in both results.") };
    let mean = ratios.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / ratios.len() as f64;
    let more = ratios.iter().filter(|(ratio, _)| *ratio > 1.1).count();
    println!(
        "Smart's waits over those before: {:.3} in the geometric mean of {} cells, more than 1.1 in {more}, at most \
         {worst:.2}: {cell}",
        mean.exp(),
        ratios.len()
    );
}

/// The newer results, and the earlier ones of replays that were not made again. The order is the order of the
/// earlier results, then the order of the newer ones.
fn joined(newer: Vec<ArenaRun>, earlier: Vec<ArenaRun>) -> Vec<ArenaRun> {
    let key = |run: &ArenaRun| (format!("{:?}", run.cell), run.policy.clone());
    let places: HashMap<_, _> = earlier.iter().enumerate().map(|(place, run)| (key(run), place)).collect();
    let mut all = earlier;
    for run in newer {
        match places.get(&key(&run)) {
            Some(place) => all[*place] = run,
            None => all.push(run),
        }
    }
    all
}

/// Replays what `options` ask for, on all processors.
fn fight(dir: &Path, options: &Options, passes: u32) -> Result<Vec<ArenaRun>, Box<dyn Error>> {
    let mut traces = Vec::new();
    for set in SETS.into_iter().filter(|set| options.set.as_ref().is_none_or(|it| it == set)) {
        let Ok(files) = fs::read_dir(dir.join(set)) else { continue };
        let mut paths = files.map(|file| Ok(file?.path())).collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        let is_trace = |path: &PathBuf| path.extension().is_some_and(|it| it == "parquet");
        let is_asked = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            options.names.as_ref().is_none_or(|names| names.contains(&name))
        };
        for path in paths.iter().filter(|path| is_trace(path) && is_asked(path)) {
            traces.push(ArenaTrace::read(path, set)?);
        }
    }
    if traces.is_empty() {
        return Err(format!("no such traces in {}: record them with arena/record", dir.display()).into());
    }
    let profiles = options.profiles()?;
    let believed = profiles.iter().map(|profile| options.believed(profile)).collect::<Result<Vec<_>, _>>()?;
    let think_scales = options.think_scales.clone().unwrap_or_else(|| vec![0.0, 0.1, 1.0, 10.0]);
    let contenders = options.policies.clone().unwrap_or_else(Contender::all);
    let mut cells = Vec::new();
    for trace in &traces {
        for drive in profiles.iter().zip(&believed) {
            cells.extend(think_scales.iter().map(|scale| (trace, drive, *scale)));
        }
    }
    let began = Instant::now();
    let waiting = Mutex::new(cells.iter().enumerate());
    let finished = Mutex::new(vec![None; cells.len()]);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let next = || waiting.lock().ok()?.next();
                while let Some((place, (trace, (profile, believed), scale))) = next() {
                    let runs = trace
                        .fight(profile, believed, *scale, &contenders, passes)
                        .map_err(|it| it.to_string());
                    if let Ok(mut finished) = finished.lock() {
                        finished[place] = Some(runs);
                    }
                }
            });
        }
    });
    eprintln!("{} cells in {:.1} s", cells.len(), began.elapsed().as_secs_f64());
    let mut all = Vec::new();
    for runs in finished.into_inner()?.into_iter().flatten() {
        all.extend(runs?);
    }
    Ok(all)
}
