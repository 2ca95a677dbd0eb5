//! `trimtab report`: tables and pages made again from result files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use trimtab_linux::file::create_directory;
use trimtab_report::bench::Comparison;
use trimtab_report::{Document, latency_png};
use trimtab_trace::{Format, TraceFile};

use crate::outputs::new_output;

/// Makes tables and HTML pages again from result files
///
/// Prints each file's tables and what follows from them; several results of bench are set beside
/// each other first. With --html, also writes one page with a section a file; it needs no network
/// and no other file.
#[derive(clap::Args)]
pub struct Args {
    /// Result files, as --json writes them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write an HTML page to this file, or as index.html to this directory
    #[arg(long, value_name = "FILE|DIR")]
    html: Option<PathBuf>,
    /// Write the chart of discard latency by size, of all results of bench, to this file as a PNG
    /// image; needs a font on this machine
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Replace an earlier page or image
    #[arg(long)]
    overwrite: bool,
    /// Print the tables' figures and the advice as JSON: an array with one entry a file
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let documents = args.files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let benches = documents.iter().zip(&args.files);
    let (benches, files): (Vec<_>, Vec<_>) =
        benches.filter_map(|(document, file)| Some((document.bench()?, file.display().to_string()))).unzip();
    let comparison = Comparison::of(benches).map(|comparison| comparison.from_files(files));
    let image =
        args.png.as_ref().map(|_| latency_png(&documents)).transpose().context("cannot make --png")?;
    let page = args.html.as_deref().map(page_file).transpose()?;
    let open = |path: &PathBuf| new_output(path, args.overwrite);
    let outputs = (page.as_ref().map(open).transpose()?, args.png.as_ref().map(open).transpose()?);
    if let Some(output) = outputs.0 {
        let beside = comparison.as_ref().map(Comparison::section);
        let sections = beside.into_iter().chain(documents.iter().flat_map(Document::sections));
        output.replace(trimtab_report::page(&sections.collect::<Vec<_>>()).as_bytes())?;
    }
    if let (Some(output), Some(image)) = (outputs.1, image) {
        output.replace(&image)?;
    }
    let mut text = if args.json {
        let figures: Vec<_> = documents.iter().map(Document::figures).collect();
        serde_json::to_string_pretty(&figures)? + "\n"
    } else {
        let colour = crate::colour();
        let texts: Vec<_> = documents.iter().map(|document| document.text(colour)).collect();
        let beside = comparison.map(|comparison| comparison.text(colour) + "\n").unwrap_or_default();
        match texts.as_slice() {
            [only] => only.clone(),
            several => beside + &titled(&args.files, several),
        }
    };
    if !args.json {
        let written = [("Report", page), ("Chart", args.png)];
        for (name, path) in written.iter().filter_map(|(name, path)| Some((name, path.as_ref()?))) {
            text += &format!("\n{name}: {}\n", path.display());
        }
    }
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Document> {
    if path.is_file()
        && let Ok(Some(format)) = Format::detect(path)
    {
        if format == Format::Trimtab && TraceFile::open(path).is_err() {
            bail!(
                "{} is a Parquet table: report reads the JSON files that --json and --report of a verb write",
                path.display()
            );
        }
        bail!(
            "{} is a trace ({format}): trimtab trace info says what it holds, trimtab sim replays it",
            path.display()
        );
    }
    let json = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Document::parse(&json).with_context(|| path.display().to_string())
}

/// Each text below the name of its file.
fn titled(files: &[PathBuf], texts: &[String]) -> String {
    let pairs = files.iter().zip(texts);
    pairs.map(|(file, text)| format!("{}\n{text}", file.display())).collect::<Vec<_>>().join("\n")
}

/// Returns the path of the page that `--html` names, below a directory that is made if it is not there.
fn page_file(path: &Path) -> Result<PathBuf> {
    let is_file = !path.is_dir() && path.extension().is_some_and(|ext| ext == "html" || ext == "htm");
    if is_file {
        return Ok(path.to_owned());
    }
    if path.is_file() {
        bail!("{} is a file: name a page that ends in .html, or a directory", path.display());
    }
    create_directory(path)?;
    Ok(path.join("index.html"))
}
