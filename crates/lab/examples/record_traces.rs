//! Records the data set of `traces/`: each recipe's workload on its file system, in a guest in virtual time.
//! Needs no root. Traces that exist are left alone.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::Engine;
use trimtab_core::interrupt::Interrupt;
use trimtab_guest::{GuestCommand, GuestImage, GuestOptions, GuestStatus, KernelChoice};
use trimtab_lab::fs::FileSystem;

const USAGE: &str = "\
usage: cargo run --release -p trimtab-lab --example record_traces -- TRIMTAB DIR [SET/NAME | SET]...

Records what traces/recipes lists, or only those sets and names, to DIR/SET/NAME.parquet.
TRIMTAB is the program that records. Needs QEMU, /usr/bin/python3 and the file systems' makers.";

/// Where Python's own modules are, apart from the program.
const PYTHON: &str = "/usr/bin/python3";
/// Where the guest has the script that records, and the workloads.
const INSIDE: &str = "/traces/inside";
const WORK: &str = "/traces/work.py";
/// The wall time after which a guest counts as hung: a busy machine takes minutes for a large trace.
const LIMIT: Duration = Duration::from_secs(3 * 3600);
/// The guest's memory besides twice the file system's image, which is in memory as well.
const MEMORY: Bytes = Bytes(1 << 30);

/// A line of `traces/recipes`.
#[derive(Debug)]
struct Recipe {
    set: String,
    name: String,
    file_system: String,
    size: Bytes,
    workload: String,
    seed: String,
}

impl Recipe {
    fn parse(line: &str) -> Result<Self, Box<dyn Error>> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let Ok([set, name, file_system, size, workload, seed]) = <[String; 6]>::try_from(words) else {
            return Err(format!("traces/recipes: {line:?} has not the six words of a recipe").into());
        };
        Ok(Self { set, name, file_system, size: size.parse()?, workload, seed })
    }

    /// Returns true if one of `chosen` is its set or its set and name, or nothing is chosen.
    fn is_chosen(&self, chosen: &[String]) -> bool {
        let full = format!("{}/{}", self.set, self.name);
        chosen.is_empty() || chosen.iter().any(|word| *word == self.set || *word == full)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [trimtab, directory, chosen @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let text = fs::read_to_string(root.join("traces/recipes"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let recipes = lines.map(Recipe::parse).collect::<Result<Vec<_>, _>>()?;
    let recipes: Vec<_> = recipes.into_iter().filter(|recipe| recipe.is_chosen(chosen)).collect();
    if recipes.is_empty() {
        return Err(format!("traces/recipes has none of {chosen:?}\n{USAGE}").into());
    }
    let mut images: Vec<(String, GuestImage)> = Vec::new();
    let mut failed = 0;
    for recipe in &recipes {
        let output = Path::new(directory).join(&recipe.set).join(&recipe.name).with_extension("parquet");
        if output.exists() {
            continue;
        }
        fs::create_dir_all(output.parent().unwrap_or(Path::new(".")))?;
        if !images.iter().any(|(name, _)| *name == recipe.file_system) {
            images.push((recipe.file_system.clone(), image(&recipe.file_system, trimtab, &root)?));
        }
        let image = images.iter().find(|(name, _)| *name == recipe.file_system);
        let image = &image.ok_or("no image")?.1;
        // The others are recorded all the same.
        match record(recipe, image) {
            Ok(trace) => {
                let part = output.with_extension("parquet.part");
                fs::write(&part, trace)?;
                fs::rename(&part, &output)?;
                println!("{}", output.display());
            }
            Err(error) => {
                eprintln!("{}/{}: {error}", recipe.set, recipe.name);
                failed += 1;
            }
        }
    }
    if failed > 0 {
        Err(format!("{failed} of {} traces were not recorded", recipes.len()).into())
    } else {
        Ok(())
    }
}

/// Packs a guest that can record on a file system.
fn image(file_system: &str, trimtab: &str, root: &Path) -> Result<GuestImage, Box<dyn Error>> {
    let mut files =
        vec![PathBuf::from("/usr/sbin/losetup"), PathBuf::from(PYTHON), fs::canonicalize(PYTHON)?];
    files.extend(python_modules()?);
    let file_system: FileSystem = file_system.parse()?;
    let options = GuestOptions {
        engine: Engine::Qemu,
        kernel: KernelChoice::default(),
        program: trimtab.into(),
        modules: vec![file_system.name().to_owned()],
        programs: file_system.programs(false),
        tools: true,
        files,
        data: Vec::new(),
        placed: vec![(root.join("traces/inside"), INSIDE.into()), (root.join("arena/work.py"), WORK.into())],
    };
    Ok(GuestImage::prepare(&options, &Interrupt::never())?)
}

/// The files of Python's own modules that the workloads may import.
fn python_modules() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let program = fs::canonicalize(PYTHON)?;
    let library = Path::new("/usr/lib").join(program.file_name().ok_or("Python has no name")?);
    let mut found = Vec::new();
    for entry in fs::read_dir(library)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_needed = ["collections", "encodings", "importlib", "json", "lib-dynload", "re", "sqlite3"];
        if name.ends_with(".py") || is_needed.contains(&name.as_str()) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Runs a recipe and returns the bytes of its trace.
fn record(recipe: &Recipe, image: &GuestImage) -> Result<Vec<u8>, Box<dyn Error>> {
    let size = recipe.size.0.to_string();
    let arguments = ["sh", INSIDE, &recipe.file_system, &size, WORK, &recipe.workload, &recipe.seed];
    let command = GuestCommand {
        arguments: arguments.map(str::to_owned).to_vec(),
        files_back: vec!["trace.parquet".into()],
        memory: Bytes(MEMORY.0 + 2 * recipe.size.0),
        limit: LIMIT,
    };
    let mut print = |line: &str| eprintln!("{}/{}: {line}", recipe.set, recipe.name);
    let output = image.run(&command, &Interrupt::never(), &mut print)?;
    if output.status != GuestStatus::Exited(0) {
        return Err(format!("the guest ended with {:?}", output.status).into());
    }
    output.files.into_iter().flatten().next().ok_or_else(|| "the guest left no trace".into())
}
