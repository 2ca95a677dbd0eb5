//! Writing a column of names: a dictionary of them, and each row's place in it.
//!
//! The parquet crate would look each row's name up by its bytes, which cost half of the processor time of
//! a recording; here each row comes with its place.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};

use super::encoding::encode_runs;
use super::schema::{Column, PAGE_ROWS, SCHEMA, ZSTD_LEVEL, compression};

/// Writes the next column of `group`, which is `column`: for each of `rows` its name's place in
/// `names`, or none, which only an optional column takes.
pub(super) fn write_names(
    group: &mut SerializedRowGroupWriter<Vec<u8>>,
    column: Column,
    names: &[String],
    rows: &[Option<u32>],
) -> Result<(), ParquetError> {
    let mut chunk = Chunk { sink: TrackedWrite::new(Vec::new()), unpacked: 0 };
    chunk.put_dictionary(names)?;
    let data = chunk.sink.bytes_written();
    let width = (names.len().saturating_sub(1)).checked_ilog2().map_or(1, |bits| bits + 1);
    for page in rows.chunks(PAGE_ROWS) {
        chunk.put_page(page, width, column.is_optional())?;
    }
    let Chunk { sink, unpacked } = chunk;
    let bytes = Bytes::from(sink.into_inner()?);
    let metadata = ColumnChunkMetaData::builder(SCHEMA.column(column as usize))
        .set_compression(compression())
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size(unpacked as i64)
        .set_num_values(rows.len() as i64)
        .set_dictionary_page_offset(Some(0))
        .set_data_page_offset(data as i64)
        .set_statistics(statistics(column, names, rows)?)
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows.len() as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    group.append_column(&bytes, close)
}

/// The pages of a column of a row group.
struct Chunk {
    sink: TrackedWrite<Vec<u8>>,
    /// How many bytes they are before compression, with their heads.
    unpacked: usize,
}

impl Chunk {
    fn put_dictionary(&mut self, names: &[String]) -> Result<(), ParquetError> {
        let mut plain = Vec::new();
        for name in names {
            put_by_length(&mut plain, name.as_bytes());
        }
        let (num_values, encoding) = (names.len() as u32, Encoding::PLAIN);
        self.put(&plain, |buf| Page::DictionaryPage { buf, num_values, encoding, is_sorted: false })
    }

    fn put_page(&mut self, rows: &[Option<u32>], width: u32, optional: bool) -> Result<(), ParquetError> {
        let mut plain = Vec::new();
        if optional {
            let mut levels = Vec::new();
            encode_runs(rows.iter().map(|row| u32::from(row.is_some())), 1, &mut levels);
            put_by_length(&mut plain, &levels);
        }
        plain.push(width as u8);
        encode_runs(rows.iter().copied().flatten(), width, &mut plain);
        self.put(&plain, |buf| Page::DataPage {
            buf,
            num_values: rows.len() as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })
    }

    fn put(&mut self, plain: &[u8], page: impl FnOnce(Bytes) -> Page) -> Result<(), ParquetError> {
        let packed = zstd::bulk::compress(plain, ZSTD_LEVEL)?;
        let page = CompressedPage::new(page(packed.into()), plain.len());
        let written = SerializedPageWriter::new(&mut self.sink).write_page(page)?;
        self.unpacked += written.uncompressed_size;
        Ok(())
    }
}

/// The first and the last, by their letters, of the names that rows have.
fn statistics(column: Column, names: &[String], rows: &[Option<u32>]) -> Result<Statistics, ParquetError> {
    let mut used = vec![false; names.len()];
    for place in rows.iter().flatten() {
        let used = used.get_mut(*place as usize);
        let unnamed = || ParquetError::General(format!("the header names no such {}", column.name()));
        *used.ok_or_else(unnamed)? = true;
    }
    let used = names.iter().zip(used).filter(|(_, used)| *used).map(|(name, _)| name.as_str());
    let (first, last) = (used.clone().min().map(ByteArray::from), used.max().map(ByteArray::from));
    let nulls = rows.iter().filter(|row| row.is_none()).count() as u64;
    Ok(Statistics::byte_array(first, last, None, Some(nulls), false))
}

/// Appends `bytes` behind their count.
fn put_by_length(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
