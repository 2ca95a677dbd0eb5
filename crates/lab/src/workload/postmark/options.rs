//! PostMark's parameters, as a user writes them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use trimtab_core::Bytes;
use trimtab_core::units::UnitError;

/// PostMark's parameters; written as `files=500,transactions=10000,sizes=512..10K`, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostmarkOptions {
    /// Files at the beginning; without a number, as many as take a quarter of the space.
    pub files: Option<u32>,
    /// Transactions; without a number, two for each file.
    pub transactions: Option<u32>,
    /// The smallest and the largest file.
    pub sizes: RangeInclusive<Bytes>,
    /// Subdirectories; 0 and 1 mean none.
    pub subdirectories: u32,
    /// Of ten transactions, how many read and do not append; none for neither.
    pub read_bias: Option<u8>,
    /// Of ten transactions, how many create and do not delete; none for neither.
    pub create_bias: Option<u8>,
}

/// Why text is no PostMark parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostmarkOptionsError {
    /// Not of the form NAME=VALUE.
    #[error("{0:?} is not of the form NAME=VALUE; write, for example, files=500,transactions=10000")]
    NoValue(String),
    /// A name that isn't one.
    #[error(
        "PostMark has no parameter {0:?}; there are files, transactions, sizes, subdirectories, \
         read_bias, create_bias"
    )]
    UnknownName(String),
    /// A count that is none, or out of range.
    #[error("{name}={value} is not a whole number from {} to {}", range.start(), range.end())]
    Count {
        /// The parameter.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The allowed values.
        range: RangeInclusive<u32>,
    },
    /// A bias that is none, or out of range.
    #[error("{name}={value} is not a whole number from 0 to 10, or -1 for none of both")]
    Bias {
        /// The parameter.
        name: &'static str,
        /// The value that was given.
        value: String,
    },
    /// Sizes that can't be read.
    #[error("sizes={value}: {source}")]
    Size {
        /// The value that was given.
        value: String,
        /// Why.
        source: UnitError,
    },
    /// Sizes that are no range of files.
    #[error(
        "sizes={0} does not go from a smaller to a larger size of 1 B to 1 GiB; write, for example, 512..10K"
    )]
    Sizes(String),
}

/// The most files and transactions: a plan of this many is kept in memory.
const MOST: u32 = 10_000_000;

impl Default for PostmarkOptions {
    /// PostMark's own, but ten subdirectories, and files and transactions by the space.
    fn default() -> Self {
        Self {
            files: None,
            transactions: None,
            sizes: Bytes(500)..=Bytes(10_000),
            subdirectories: 10,
            read_bias: Some(5),
            create_bias: Some(5),
        }
    }
}

impl FromStr for PostmarkOptions {
    type Err = PostmarkOptionsError;

    fn from_str(text: &str) -> Result<Self, PostmarkOptionsError> {
        let mut options = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) =
                item.split_once('=').ok_or_else(|| PostmarkOptionsError::NoValue(item.to_owned()))?;
            match name.trim() {
                "files" => options.files = Some(count("files", value, 1..=MOST)?),
                "transactions" => options.transactions = Some(count("transactions", value, 0..=MOST)?),
                "sizes" => options.sizes = sizes(value)?,
                "subdirectories" => options.subdirectories = count("subdirectories", value, 0..=10_000)?,
                "read_bias" => options.read_bias = bias("read_bias", value)?,
                "create_bias" => options.create_bias = bias("create_bias", value)?,
                other => return Err(PostmarkOptionsError::UnknownName(other.to_owned())),
            }
        }
        Ok(options)
    }
}

fn count(name: &'static str, value: &str, range: RangeInclusive<u32>) -> Result<u32, PostmarkOptionsError> {
    let count = value.trim().parse().ok().filter(|count| range.contains(count));
    count.ok_or_else(|| PostmarkOptionsError::Count { name, value: value.to_owned(), range })
}

fn bias(name: &'static str, value: &str) -> Result<Option<u8>, PostmarkOptionsError> {
    match value.trim().parse() {
        Ok(-1) => Ok(None),
        Ok(bias @ 0..=10) => Ok(Some(bias as u8)),
        Ok::<i64, _>(_) | Err(_) => Err(PostmarkOptionsError::Bias { name, value: value.to_owned() }),
    }
}

fn sizes(value: &str) -> Result<RangeInclusive<Bytes>, PostmarkOptionsError> {
    let size = |text: &str| {
        text.parse().map_err(|source| PostmarkOptionsError::Size { value: value.to_owned(), source })
    };
    let (low, high) = value.split_once("..").unwrap_or((value, value));
    let (low, high): (Bytes, Bytes) = (size(low)?, size(high.trim_start_matches('='))?);
    let is_range = low <= high && low > Bytes::ZERO && high <= Bytes(1 << 30);
    is_range.then_some(low..=high).ok_or_else(|| PostmarkOptionsError::Sizes(value.to_owned()))
}

impl fmt::Display for PostmarkOptions {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(files) = self.files {
            write!(f, "files={files},")?;
        }
        if let Some(transactions) = self.transactions {
            write!(f, "transactions={transactions},")?;
        }
        let bias = |bias: Option<u8>| bias.map_or(-1, i64::from);
        write!(
            f,
            "sizes={}..{},subdirectories={},read_bias={},create_bias={}",
            self.sizes.start().0,
            self.sizes.end().0,
            self.subdirectories,
            bias(self.read_bias),
            bias(self.create_bias)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_print_as_they_are_read() {
        let text =
            "files=500,transactions=10000,sizes=512..10240,subdirectories=10,read_bias=0,create_bias=-1";
        let options: PostmarkOptions = text.parse().unwrap();
        assert_eq!(options.sizes, Bytes(512)..=Bytes(10 << 10));
        assert_eq!((options.read_bias, options.create_bias), (Some(0), None));
        assert_eq!(options.to_string(), text);
        assert_eq!("sizes=512..10K".parse::<PostmarkOptions>().unwrap().sizes, options.sizes);
        let one = "sizes=4K".parse::<PostmarkOptions>().unwrap();
        assert_eq!(one.sizes, Bytes(4096)..=Bytes(4096));
        assert_eq!("".parse(), Ok(PostmarkOptions::default()));
    }

    #[test]
    fn wrong_parameters_name_the_right_ones() {
        for (text, expected) in [
            ("files", "files=500"),
            ("file=3", "there are files, transactions, sizes"),
            ("files=0", "from 1 to 10000000"),
            ("files=many", "files=many is not a whole number"),
            ("transactions=-1", "from 0 to"),
            ("read_bias=11", "from 0 to 10, or -1"),
            ("create_bias=half", "create_bias=half"),
            ("sizes=10K..512", "512..10K"),
            ("sizes=0..1K", "512..10K"),
            ("sizes=1K..2G", "1 GiB"),
            ("sizes=small", "not a number with a unit"),
            ("subdirectories=100000", "from 0 to 10000"),
        ] {
            let said = text.parse::<PostmarkOptions>().unwrap_err().to_string();
            assert!(said.contains(expected) && said.lines().count() == 1, "{text}: {said}");
        }
    }
}
