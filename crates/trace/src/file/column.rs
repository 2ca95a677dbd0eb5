//! One column of a row group, decoded page by page.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::encoding::{decode_deltas, decode_runs};
use super::names::Names;
use super::schema::Column;
use crate::error::RowError;

/// The most rows that a page may claim to hold: what this crate writes is far below, what is above
/// would take the reader's memory.
const MAX_PAGE_ROWS: u32 = 1 << 20;

/// The most bytes that a page may unpack to.
const MAX_PAGE_BYTES: usize = 1 << 27;

/// The value that stands for "none" in an optional column.
pub(super) const NONE: i64 = -1;

/// A column of a row group: its numbers, or what its names stand for.
pub(super) struct ColumnReader {
    column: Column,
    /// The pages as they are stored: a page's own word for its size would be believed up to 2 GiB.
    pages: SerializedPageReader<File>,
    packed: bool,
    /// The values of the dictionary's entries.
    dictionary: Vec<i64>,
    /// The page at hand.
    values: Vec<i64>,
    /// How many of them were handed out.
    taken: usize,
}

impl ColumnReader {
    pub(super) fn new(
        column: Column,
        file: &Arc<File>,
        chunk: &ColumnChunkMetaData,
        rows: usize,
    ) -> Result<Self, RowError> {
        let packed = match chunk.compression() {
            Compression::UNCOMPRESSED => false,
            Compression::ZSTD(_) => true,
            other => return Err(RowError::Packed { column: column.name(), compression: other }),
        };
        let stored = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let pages = SerializedPageReader::new(Arc::clone(file), &stored, rows, None)?;
        Ok(Self { column, pages, packed, dictionary: Vec::new(), values: Vec::new(), taken: 0 })
    }

    /// The values at hand, of the next page if there are none of the last; empty at the end.
    pub(super) fn fill(&mut self, names: &mut Names) -> Result<&[i64], RowError> {
        while self.taken == self.values.len() {
            self.values.clear();
            self.taken = 0;
            match self.pages.get_next_page()? {
                None => break,
                Some(Page::DictionaryPage { buf, num_values, .. }) if self.column.is_text() => {
                    self.read_dictionary(&self.unpacked(buf)?, num_values, names)?;
                }
                Some(Page::DataPage { buf, num_values, encoding, .. }) => {
                    self.read_page(&self.unpacked(buf)?, num_values, encoding)?;
                }
                Some(page) => return Err(self.unknown(page.encoding())),
            }
        }
        Ok(&self.values[self.taken..])
    }

    /// The first `count` values at hand, which count as handed out.
    pub(super) fn take(&mut self, count: usize) -> &[i64] {
        let from = self.taken;
        self.taken += count;
        &self.values[from..self.taken]
    }

    pub(super) fn broken(&self) -> RowError {
        RowError::Broken { column: self.column.name() }
    }

    fn unpacked(&self, page: Bytes) -> Result<Bytes, RowError> {
        if !self.packed || page.is_empty() {
            return Ok(page);
        }
        let unpacked = zstd::bulk::decompress(&page, MAX_PAGE_BYTES).map_err(|_| self.broken())?;
        Ok(unpacked.into())
    }

    fn unknown(&self, encoding: Encoding) -> RowError {
        RowError::Encoding { column: self.column.name(), encoding }
    }

    fn read_dictionary(&mut self, page: &Bytes, entries: u32, names: &mut Names) -> Result<(), RowError> {
        let mut rest: &[u8] = page;
        self.dictionary.clear();
        for _ in 0..entries {
            let name = split_by_length(&mut rest).ok_or_else(|| self.broken())?;
            self.dictionary.push(names.resolve(self.column, name)?);
        }
        Ok(())
    }

    fn read_page(&mut self, page: &Bytes, rows: u32, encoding: Encoding) -> Result<(), RowError> {
        if rows > MAX_PAGE_ROWS {
            return Err(self.broken());
        }
        let (mut data, rows): (&[u8], _) = (page, rows as usize);
        let mut levels = Vec::new();
        if self.column.is_optional() {
            let packed = split_by_length(&mut data).ok_or_else(|| self.broken())?;
            decode_runs(packed, 1, rows, &mut levels).ok_or_else(|| self.broken())?;
        }
        let present =
            if self.column.is_optional() { levels.iter().filter(|level| **level == 1).count() } else { rows };
        match encoding {
            Encoding::DELTA_BINARY_PACKED if !self.column.is_text() => {
                decode_deltas(data, present, &mut self.values).ok_or_else(|| self.broken())?;
            }
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY if self.column.is_text() => {
                let mut codes = Vec::with_capacity(present);
                let width = data.split_off_first().ok_or_else(|| self.broken())?;
                decode_runs(data, u32::from(*width), present, &mut codes).ok_or_else(|| self.broken())?;
                for code in codes {
                    let value = self.dictionary.get(code as usize).ok_or_else(|| self.broken())?;
                    self.values.push(*value);
                }
            }
            other => return Err(self.unknown(other)),
        }
        if self.column != Column::Time
            && let Some(value) = self.values.iter().find(|value| **value < 0)
        {
            return Err(RowError::Value { column: self.column.name(), value: *value });
        }
        if present < rows {
            spread(&mut self.values, &levels);
        }
        Ok(())
    }
}

/// Moves `values` to the places where `levels` are 1, and puts [`NONE`] at the others.
fn spread(values: &mut Vec<i64>, levels: &[u32]) {
    let mut next = values.len();
    values.resize(levels.len(), NONE);
    for (place, level) in levels.iter().enumerate().rev() {
        if *level == 1 {
            next -= 1;
            values[place] = values[next];
        } else {
            values[place] = NONE;
        }
    }
}

/// Takes the bytes whose count stands before them.
fn split_by_length<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(*data.split_off(..4)?.first_chunk()?);
    data.split_off(..length as usize)
}
