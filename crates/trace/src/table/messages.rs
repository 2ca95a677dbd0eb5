//! The messages of Arrow's files and streams ("Serialization and Interprocess Communication" of the Arrow Columnar Format).
//!
//! A file is a stream between a mark and a footer, but Polars writes no whole message for the schema there: so a file is read
//! by its footer, which has the schema and the places of the messages. Each length is checked against the file before it is
//! used.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::num::TryFromIntError;

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::{Message, root_as_message};
use arrow_schema::{ArrowError, DataType, Schema, UnionMode};

use crate::error::RowError;
use crate::input::fill;

/// How a file begins, and ends.
pub(super) const FILE: &[u8; 6] = b"ARROW1";
/// How a message begins, since version 0.15 of the format.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];
/// The longest description of a message: a schema of some thousand columns is shorter.
const MOST_DESCRIPTION: usize = 1 << 24;
/// The most bytes that a buffer may unpack to.
const MOST_UNPACKED: i64 = 1 << 31;
/// The most bytes between messages, and between the last one and the footer: the mark of the end, and zeroes.
const MOST_PADDING: u64 = 128;

/// The messages of a table.
pub(super) enum Messages {
    Stream(BufReader<Box<dyn Read + Send>>),
    File {
        file: BufReader<File>,
        /// The places of the messages that were not read yet.
        blocks: VecDeque<Block>,
    },
}

/// A message: its description, and its data.
pub(super) struct Parts {
    description: Buffer,
    pub(super) body: Buffer,
}

/// The place of a message in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    start: u64,
    /// The bytes of the description, with what goes before it.
    description: usize,
    body: usize,
}

impl Block {
    fn of(block: &arrow_ipc::Block) -> Result<Self, RowError> {
        Ok(Self {
            start: block.offset().try_into().map_err(negative)?,
            description: block.metaDataLength().try_into().map_err(negative)?,
            body: block.bodyLength().try_into().map_err(negative)?,
        })
    }

    /// Returns where it ends; a length that no file has is as good as any other.
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.description as u64).saturating_add(self.body as u64)
    }
}

pub(super) fn open_stream(
    mut input: BufReader<Box<dyn Read + Send>>,
) -> Result<(Messages, Schema), RowError> {
    let parts = next_in_stream(&mut input)?.ok_or(RowError::CutOff)?;
    let schema = parts.message()?.header_as_schema().ok_or_else(|| wrong("it begins with no schema"))?;
    let schema = arrow_ipc::convert::try_fb_to_schema(schema)?;
    Ok((Messages::Stream(input), schema))
}

pub(super) fn open_file(mut file: BufReader<File>) -> Result<(Messages, Schema), RowError> {
    let mut last = [0; 10];
    file.seek(SeekFrom::End(-(last.len() as i64)))?;
    file.read_exact(&mut last)?;
    let past = file.stream_position()? - last.len() as u64;
    if !last.ends_with(FILE) {
        return Err(RowError::CutOff);
    }
    let length = u32::from_le_bytes(*last.first_chunk().expect("there are 10 bytes"));
    let begin =
        past.checked_sub(length.into()).filter(|begin| *begin >= 8 && length as usize <= MOST_DESCRIPTION);
    let begin = begin.ok_or_else(|| wrong("the footer is longer than the file"))?;
    file.seek(SeekFrom::Start(begin))?;
    let footer = take(&mut file, length as usize)?;
    let footer = arrow_ipc::root_as_footer(&footer).map_err(|error| wrong(&error.to_string()))?;
    let schema = footer.schema().ok_or_else(|| wrong("it has no schema"))?;
    let schema = arrow_ipc::convert::try_fb_to_schema(schema)?;
    let dictionaries = footer.dictionaries().into_iter().flatten();
    let batches = footer.recordBatches().into_iter().flatten();
    let blocks: VecDeque<_> = dictionaries.chain(batches).map(Block::of).collect::<Result<_, _>>()?;
    check_blocks(blocks.iter().copied().collect(), begin, length.into())?;
    Ok((Messages::File { file, blocks }, schema))
}

/// Refuses messages that are not one behind the other up to the footer: one may be missing, or of another file.
fn check_blocks(mut blocks: Vec<Block>, footer: u64, footer_length: u64) -> Result<(), RowError> {
    blocks.sort_unstable_by_key(|block| block.start);
    let misplaced = || wrong("the messages that the footer names do not fill the file");
    // Before the first one is the schema, which the footer has, too.
    let mut past = blocks.first().map_or(footer, |block| block.start);
    if past < 8 || past > 2 * footer_length + 1024 {
        return Err(misplaced());
    }
    for block in &blocks {
        if block.start < past || block.start - past > MOST_PADDING {
            return Err(misplaced());
        }
        past = block.end();
    }
    if past <= footer && footer - past <= MOST_PADDING { Ok(()) } else { Err(misplaced()) }
}

impl Messages {
    /// Returns the next message, or nothing at the end.
    pub(super) fn next(&mut self) -> Result<Option<Parts>, RowError> {
        match self {
            Self::Stream(input) => next_in_stream(input),
            Self::File { file, blocks } => {
                let Some(block) = blocks.pop_front() else { return Ok(None) };
                file.seek(SeekFrom::Start(block.start))?;
                let description = take(file, block.description)?;
                // The length comes first, since version 0.15 behind a mark.
                let before = if description.starts_with(&CONTINUATION) { 8 } else { 4 };
                if block.description < before {
                    return Err(wrong("a message is too short"));
                }
                let description = description.slice(before);
                let parts = Parts { description, body: take(file, block.body)? };
                if parts.message()?.bodyLength() != block.body as i64 {
                    return Err(wrong("a message has another length than in the footer"));
                }
                Ok(Some(parts))
            }
        }
    }
}

fn next_in_stream(input: &mut BufReader<Box<dyn Read + Send>>) -> Result<Option<Parts>, RowError> {
    let mut word = [0; 4];
    match fill(input, &mut word)? {
        0 => return Ok(None),
        4 => {}
        _ => return Err(RowError::CutOff),
    }
    if word != CONTINUATION {
        return Err(wrong("no message begins here, or one from before version 0.15 of Arrow"));
    }
    if fill(input, &mut word)? < 4 {
        return Err(RowError::CutOff);
    }
    let length = u32::from_le_bytes(word) as usize;
    if length == 0 {
        let is_end = input.fill_buf()?.is_empty();
        return if is_end { Ok(None) } else { Err(wrong("more follows the end of the stream")) };
    }
    if length > MOST_DESCRIPTION {
        return Err(wrong("the description of a message is too long"));
    }
    let description = take(input, length)?;
    let message = root_as_message(&description).map_err(|error| wrong(&error.to_string()))?;
    let length = usize::try_from(message.bodyLength()).map_err(|_| wrong("a length is negative"))?;
    let body = take(input, length)?;
    Ok(Some(Parts { description, body }))
}

/// Returns the next `length` bytes. Takes no more memory than the input has bytes.
fn take(input: &mut impl Read, length: usize) -> Result<Buffer, RowError> {
    let mut bytes = MutableBuffer::new(length.min(1 << 16));
    let mut piece = [0; 1 << 14];
    while bytes.len() < length {
        let wanted = piece.len().min(length - bytes.len());
        let filled = fill(input, &mut piece[..wanted])?;
        bytes.extend_from_slice(&piece[..filled]);
        if filled < wanted {
            return Err(RowError::CutOff);
        }
    }
    Ok(bytes.into())
}

impl Parts {
    pub(super) fn message(&self) -> Result<Message<'_>, RowError> {
        root_as_message(&self.description).map_err(|error| wrong(&error.to_string()))
    }

    /// Refuses a batch of columns of these types whose buffers are not inside its data, unpack to too much, or have lengths
    /// that the decoder does not expect.
    pub(super) fn check<'a>(
        &self,
        batch: arrow_ipc::RecordBatch,
        mut columns: impl Iterator<Item = &'a DataType>,
    ) -> Result<(), RowError> {
        let mut views = batch.variadicBufferCounts().into_iter().flatten();
        let mut units = Vec::new();
        columns.try_for_each(|kind| add_units(kind, &mut views, &mut units))?;
        let buffers = batch.buffers().map_or(0, |buffers| buffers.len());
        if batch.length() < 0 || units.len() != buffers {
            return Err(wrong("a batch does not have the buffers of its columns"));
        }
        for (buffer, unit) in batch.buffers().into_iter().flatten().zip(units) {
            let mut length = u64::try_from(buffer.length()).map_err(negative)?;
            let start = u64::try_from(buffer.offset()).map_err(negative)?;
            if start.checked_add(length).is_none_or(|end| end > self.body.len() as u64) {
                return Err(wrong("a buffer is not inside its message"));
            }
            if batch.compression().is_some() && length > 0 {
                let bytes = self.body[start as usize..].first_chunk().filter(|_| length >= 8);
                match i64::from_le_bytes(*bytes.ok_or_else(|| wrong("a packed buffer is too short"))?) {
                    // Not packed.
                    -1 => length -= 8,
                    unpacked if unpacked > MOST_UNPACKED => {
                        return Err(wrong("a buffer unpacks to more than 2 GiB: write smaller batches"));
                    }
                    unpacked => length = u64::try_from(unpacked).map_err(negative)?,
                }
            }
            if !length.is_multiple_of(unit) {
                return Err(wrong("a buffer holds a part of a number"));
            }
        }
        Ok(())
    }
}

fn negative(_: TryFromIntError) -> RowError {
    wrong("a length is negative")
}

/// Adds the units of the buffers of a column. The decoder panics if a buffer ends inside a number.
fn add_units(
    kind: &DataType,
    views: &mut impl Iterator<Item = i64>,
    units: &mut Vec<u64>,
) -> Result<(), RowError> {
    let children: Vec<&DataType> = match kind {
        DataType::Null => return Ok(()),
        DataType::Utf8 | DataType::Binary => return add(units, &[1, 4, 1]),
        DataType::LargeUtf8 | DataType::LargeBinary => return add(units, &[1, 8, 1]),
        DataType::Utf8View | DataType::BinaryView => {
            let more = views.next().filter(|more| (0..1 << 20).contains(more));
            let more = more.ok_or_else(|| wrong("the number of a column's buffers is missing"))?;
            units.extend([1, 16]);
            units.extend(std::iter::repeat_n(1, more as usize));
            return Ok(());
        }
        DataType::List(field) | DataType::Map(field, _) => {
            units.extend([1, 4]);
            vec![field.data_type()]
        }
        DataType::LargeList(field) => {
            units.extend([1, 8]);
            vec![field.data_type()]
        }
        DataType::ListView(field) => {
            units.extend([1, 4, 4]);
            vec![field.data_type()]
        }
        DataType::LargeListView(field) => {
            units.extend([1, 8, 8]);
            vec![field.data_type()]
        }
        DataType::FixedSizeList(field, _) => {
            units.push(1);
            vec![field.data_type()]
        }
        DataType::Struct(fields) => {
            units.push(1);
            fields.iter().map(|field| field.data_type()).collect()
        }
        DataType::Union(fields, mode) => {
            units.push(1);
            units.extend((*mode == UnionMode::Dense).then_some(4));
            fields.iter().map(|(_, field)| field.data_type()).collect()
        }
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        DataType::Dictionary(keys, _) => return add_units(keys, views, units),
        _ => return add(units, &[1, kind.primitive_width().unwrap_or(1) as u64]),
    };
    children.into_iter().try_for_each(|child| add_units(child, views, units))
}

fn add(units: &mut Vec<u64>, more: &[u64]) -> Result<(), RowError> {
    units.extend(more);
    Ok(())
}

pub(super) fn wrong(reason: &str) -> RowError {
    RowError::Arrow(ArrowError::IpcError(reason.to_owned()))
}
