//! Documents of any known schema, read from JSON.

use serde::Serialize;
use trimtab_core::document::{COMPARE_SCHEMA, CompareDocument};

use crate::compare::{self, Summary};
use crate::html::Section;

/// A result that can be rendered.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// What `trimtab compare` measured.
    Compare(CompareDocument),
}

/// The figures that tables show, by the kind of document they came from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// Those of a comparison.
    Compare(Summary),
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
    #[error("not a trimtab result: it has no \"schema\"; known schemas: {COMPARE_SCHEMA}")]
    NoSchema,
    /// It is a result of another version or program.
    #[error("unknown schema {found:?}; known schemas: {COMPARE_SCHEMA}")]
    UnknownSchema {
        /// The schema it names.
        found: String,
    },
    /// It names a schema that it doesn't keep to.
    #[error("not a valid {schema} document")]
    Invalid {
        /// The schema it names.
        schema: &'static str,
        /// Which field is wrong, and how.
        source: serde_path_to_error::Error<serde_json::Error>,
    },
}

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
            Some(COMPARE_SCHEMA) => serde_path_to_error::deserialize(value)
                .map(Self::Compare)
                .map_err(|source| ReadError::Invalid { schema: COMPARE_SCHEMA, source }),
            Some(found) => Err(ReadError::UnknownSchema { found: found.to_owned() }),
        }
    }

    /// Its table and advice for a terminal of 80 columns or more; `colour` adds escape codes.
    pub fn text(&self, colour: bool) -> String {
        match self {
            Self::Compare(document) => compare::text(document, colour),
        }
    }

    /// Its part of a page.
    pub fn section(&self) -> Section {
        match self {
            Self::Compare(document) => compare::section(document),
        }
    }

    /// The figures of its table and its advice.
    pub fn figures(&self) -> Figures {
        match self {
            Self::Compare(document) => Figures::Compare(Summary::of(document)),
        }
    }
}
