//! Documents of any known schema, read from JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use trimtab_core::document::sweep::{SWEEP_SCHEMA, SweepDocument, SweepRow};
use trimtab_core::document::{
    BENCH_SCHEMA, BenchDocument, COMPARE_SCHEMA, CompareDocument, REPRODUCE_SCHEMA, ReproduceDocument,
    SIM_SCHEMA, SimDocument,
};

use crate::html::Section;
use crate::{bench, compare, reproduce, sim, sweep};

/// A result that can be rendered.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// The measurements of `trimtab compare`.
    Compare(Box<CompareDocument>),
    /// The measurements of `trimtab bench`.
    Bench(Box<BenchDocument>),
    /// The results of `trimtab sim` with a trace.
    Sim(Box<SimDocument>),
    /// The results of `trimtab reproduce`.
    Reproduce(Box<ReproduceDocument>),
    /// The results of `trimtab sweep`.
    Sweep(Box<SweepDocument>),
}

/// The figures that tables show, by the kind of document they came from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// The figures of a comparison.
    Compare(compare::Summary),
    /// The figures of a bench.
    Bench(Box<bench::Summary>),
    /// The figures of a simulation.
    Sim(sim::Summary),
    /// The verdicts of a reproduction.
    Reproduce(reproduce::Summary),
    /// The rows of a sweep.
    Sweep(Vec<SweepRow>),
}

/// Why a file is not a result that can be rendered.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The JSON ends in the middle.
    #[error("the file ends too early, it was cut off")]
    CutOff(#[source] serde_json::Error),
    /// It is something else than JSON.
    #[error("not JSON")]
    NotJson(#[source] serde_json::Error),
    /// It is JSON, of somebody else.
    #[error(
        "not a trimtab result: it has no \"schema\"; known schemas: {COMPARE_SCHEMA}, {BENCH_SCHEMA}, {SIM_SCHEMA}, {REPRODUCE_SCHEMA}, {SWEEP_SCHEMA}"
    )]
    NoSchema,
    /// It is a result of another version or program.
    #[error(
        "unknown schema {found:?}; known schemas: {COMPARE_SCHEMA}, {BENCH_SCHEMA}, {SIM_SCHEMA}, {REPRODUCE_SCHEMA}, {SWEEP_SCHEMA}"
    )]
    UnknownSchema {
        /// The schema it names.
        found: String,
    },
    /// It is a comparison of an earlier version, whose figures mean something else.
    #[error(
        "its schema {OLD_COMPARE_SCHEMA} is that of an earlier trimtab, with times that leave out what runs at once; \
         this trimtab reads {COMPARE_SCHEMA}: run the comparison again"
    )]
    OldCompare,
    /// It is a simulation of an earlier version, whose figures mean something else.
    #[error(
        "its schema {OLD_SIM_SCHEMA} is that of an earlier trimtab, with waits that include discards nobody waited \
         for; this trimtab reads {SIM_SCHEMA}: run the simulation again"
    )]
    OldSim,
    /// It names a schema that it doesn't keep to.
    #[error("not a valid {schema} document")]
    Invalid {
        /// The schema it names.
        schema: &'static str,
        /// The wrong field, and the reason.
        source: serde_path_to_error::Error<serde_json::Error>,
    },
}

/// The schema of comparisons in the drive's model time, which are not read any more.
const OLD_COMPARE_SCHEMA: &str = "trimtab/compare/1";

/// The schema of simulations that charged a recorded policy for its discards, which are not read any more.
const OLD_SIM_SCHEMA: &str = "trimtab/sim/1";

impl Document {
    /// Reads the JSON text of any known document.
    ///
    /// # Errors
    /// When `json` is not a document of a known schema.
    pub fn parse(json: &str) -> Result<Self, ReadError> {
        let value: serde_json::Value = serde_json::from_str(json).map_err(|error| {
            if error.is_eof() { ReadError::CutOff(error) } else { ReadError::NotJson(error) }
        })?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            None => Err(ReadError::NoSchema),
            Some(COMPARE_SCHEMA) => read(value, COMPARE_SCHEMA).map(Self::Compare),
            Some(BENCH_SCHEMA) => read(value, BENCH_SCHEMA).map(Self::Bench),
            Some(SIM_SCHEMA) => read(value, SIM_SCHEMA).map(Self::Sim),
            Some(REPRODUCE_SCHEMA) => read(value, REPRODUCE_SCHEMA).map(Self::Reproduce),
            Some(SWEEP_SCHEMA) => read(value, SWEEP_SCHEMA).map(Self::Sweep),
            Some(OLD_COMPARE_SCHEMA) => Err(ReadError::OldCompare),
            Some(OLD_SIM_SCHEMA) => Err(ReadError::OldSim),
            Some(found) => Err(ReadError::UnknownSchema { found: found.to_owned() }),
        }
    }

    /// Its table and advice for a terminal of 80 columns or more; `colour` adds escape codes.
    pub fn text(&self, colour: bool) -> String {
        match self {
            Self::Compare(document) => compare::text(document, colour),
            Self::Bench(document) => bench::text(document, colour),
            Self::Sim(document) => sim::text(document, colour),
            Self::Reproduce(document) => reproduce::text(document, colour),
            Self::Sweep(document) => sweep::text(document, colour),
        }
    }

    /// Its part of a page.
    pub fn sections(&self) -> Vec<Section> {
        match self {
            Self::Compare(document) => vec![compare::section(document)],
            Self::Bench(document) => vec![bench::section(document)],
            Self::Sim(document) => vec![sim::section(document)],
            Self::Reproduce(document) => reproduce::sections(document),
            Self::Sweep(document) => vec![sweep::section(document)],
        }
    }

    /// The figures of its table and its advice.
    pub fn figures(&self) -> Figures {
        match self {
            Self::Compare(document) => Figures::Compare(compare::Summary::of(document)),
            Self::Bench(document) => Figures::Bench(Box::new(bench::Summary::of(document))),
            Self::Sim(document) => Figures::Sim(sim::Summary::of(document)),
            Self::Reproduce(document) => Figures::Reproduce(reproduce::Summary::of(document)),
            Self::Sweep(document) => Figures::Sweep(document.rows.clone()),
        }
    }

    /// The bench, where it is one.
    pub fn bench(&self) -> Option<&BenchDocument> {
        match self {
            Self::Bench(document) => Some(document),
            Self::Compare(_) | Self::Sim(_) | Self::Reproduce(_) | Self::Sweep(_) => None,
        }
    }
}

fn read<T: DeserializeOwned>(value: serde_json::Value, schema: &'static str) -> Result<Box<T>, ReadError> {
    serde_path_to_error::deserialize(value)
        .map(Box::new)
        .map_err(|source| ReadError::Invalid { schema, source })
}
