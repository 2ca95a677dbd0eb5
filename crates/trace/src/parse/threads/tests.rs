//! Quick parsing against thorough parsing, and several parsers against one.

use std::fmt::Debug;
use std::io::Cursor;
use std::path::Path;
use std::sync::mpsc;

use proptest::prelude::{Strategy, any, prop, prop_assert_eq, proptest};
use proptest::sample::Index;

use trimtab_core::trace::TraceSource;

use super::{Block, Channels, Content, End, Notes, Parse, Parsed, Parser, Text};
use crate::counts::TraceReader;
use crate::error::RowError;
use crate::formats::alibaba::Alibaba;
use crate::formats::biosnoop::Biosnoop;
use crate::formats::blkparse::Blkparse;
use crate::formats::cloudphysics::CloudPhysics;
use crate::formats::fio::{Fio, Version};
use crate::formats::fiu::Fiu;
use crate::formats::ftrace::Ftrace;
use crate::formats::midas::Midas;
use crate::formats::mobile::Mobile;
use crate::formats::msr::Msr;
use crate::formats::simulator::Simulator;
use crate::formats::spc::Spc;
use crate::formats::systor::Systor;
use crate::formats::tencent::Tencent;
use crate::input::{CHUNK, Pieces};
use crate::reader::RecordReader;
use crate::rows::Rows;
use crate::table::Csv;

/// A parser without [`Parse::quick`].
struct Thorough<P>(P);

impl<P: Parse> Parse for Thorough<P> {
    type Content = P::Content;

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Self::Content>, RowError> {
        self.0.line(line, notes)
    }
}

fn pieces(text: &[u8], size: usize) -> Pieces {
    Pieces::new(Box::new(Cursor::new(text.to_vec())), size)
}

/// All that a parser says of a text.
fn parsed<P: Parse<Content: Debug>>(parser: P, text: &[u8]) -> Vec<String> {
    let (feed, all) = mpsc::channel();
    let (parsed, _parsed) = mpsc::channel();
    let (blocks, received) = mpsc::sync_channel(1 << 10);
    let (_used, used) = mpsc::channel();
    let mut piece = Default::default();
    if pieces(text, CHUNK).next(&mut piece).unwrap() {
        feed.send(Ok(Some(piece))).unwrap();
    }
    feed.send(Ok(None)).unwrap();
    let channels = Channels { pieces: all, parsed, blocks, used };
    Parser::new((parser, Notes::default()), channels).run(&[]);
    received.into_iter().flat_map(lines_of).collect()
}

/// All that is read of a text in pieces of a size, by some parsers.
fn read<P: Parse>(parser: P, text: &[u8], size: usize, parsers: usize) -> Vec<String> {
    let text = Text::new(pieces(text, size), parser, parsers).unwrap();
    let mut reader = RecordReader::new(Path::new("text"), text, Rows::new("text", true));
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    let end = loop {
        match reader.next_batch(&mut batch) {
            Ok(()) if batch.is_empty() => break "end".to_owned(),
            Ok(()) => {}
            Err(error) => break error.to_string(),
        }
        all.extend(batch.iter().map(|event| format!("{event:?}")));
    };
    all.extend([end, format!("{:?}", reader.header()), format!("{:?}", reader.counts())]);
    all
}

fn lines_of<C: Content + Debug>(block: Block<C>) -> Vec<String> {
    let lines = block.lines.iter().map(|line| format!("{line:?}"));
    let notes = block.notes.iter().map(|note| format!("{note:?}"));
    let end = block.end.map(|end| match end {
        End::Piece => "end of the piece".to_owned(),
        End::Text => "end".to_owned(),
        End::Line(reason) => reason.to_string(),
        End::Input(error) => error.to_string(),
    });
    lines.chain(notes).chain(end).collect()
}

/// The results of two ways.
type Both = [Vec<String>; 2];

/// Reads a text in two ways each: by quick and by thorough parsing; in one piece by one parser, and in pieces of a size by
/// several.
fn both<P: Parse<Content: Debug>>(parser: fn() -> P, text: &[u8], size: usize, parsers: usize) -> [Both; 2] {
    [
        [parsed(parser(), text), parsed(Thorough(parser()), text)],
        [read(parser(), text, CHUNK, 1), read(parser(), text, size, parsers)],
    ]
}

/// A format with its first lines and some lines.
type Case = (fn(&[u8], usize, usize) -> [Both; 2], &'static str, &'static [&'static str]);

const CASES: [Case; 19] = [
    (
        |text, size, parsers| both(Msr::default, text, size, parsers),
        "",
        &[
            "128166372003061629,usr,0,Write,10803200,4096,41286",
            "128166372003071629,usr,0,Read,7014609920,65536,7",
        ],
    ),
    (
        |text, size, parsers| both(|| Alibaba, text, size, parsers),
        "",
        &["7,W,10803200,4096,1577808000000626", "8,R,115697172480,512,1577808000000726"],
    ),
    (
        |text, size, parsers| both(|| Tencent, text, size, parsers),
        "",
        &["1538323199,1280,8,1,1283", "1538323199,225971040,16,0,1284"],
    ),
    (
        |text, size, parsers| both(CloudPhysics::default, text, size, parsers),
        "",
        &["100,1280,r,4096", "200,225971040,W,512"],
    ),
    (
        |text, size, parsers| both(CloudPhysics::default, text, size, parsers),
        "version,time,op,size,lbn\n",
        &["2,100,28,4096,1280", "2,200,8a,512,225971040", "2,300,35,0,0", "2,400,42,24,0"],
    ),
    (
        |text, size, parsers| both(Systor::default, text, size, parsers),
        "",
        &[
            "1456135200.013118000,0.000806000,W,1,10803200,4096",
            "1456135201.5,0.1,R,2,512,512",
            "1456135201.5,,R,2,512,512",
        ],
    ),
    (
        |text, size, parsers| both(Spc::default, text, size, parsers),
        "",
        &["0,1280,4096,W,0.011413", "1,225971040,512,r,0.5", "0,1280,4096,W,0.011413,more"],
    ),
    (
        |text, size, parsers| both(|| Midas, text, size, parsers),
        "",
        &["0.000100 1 1280 4096", "1.5 3 225971040 512", "2.0 2 1 512", "3.0 0 7 4096 1"],
    ),
    (
        |text, size, parsers| both(|| Simulator::MqSim, text, size, parsers),
        "",
        &["5000 0 1280 8 1", "10000 0 225971040 16 0"],
    ),
    (
        |text, size, parsers| both(|| Simulator::DiskSim, text, size, parsers),
        "",
        &["0.005000 0 1280 8 1", "12.3456789 0 225971040 16 0", "13.0 0 1 8 0x1"],
    ),
    (
        |text, size, parsers| both(|| Fio::new(Version::Three), text, size, parsers),
        "fio version 3 iolog\n",
        &["5 sda write 0 4096", "115697172480 sda trim 115697172480 512", "9 sda sync"],
    ),
    (
        |text, size, parsers| both(|| Fio::new(Version::Two), text, size, parsers),
        "fio version 2 iolog\n",
        &["sda write 0 4096", "sda wait 115697172480 0", "sda wait 5", "sda trim 4096 512", "sda sync"],
    ),
    (
        |text, size, parsers| both(|| Fio::new(Version::One), text, size, parsers),
        "",
        &["0, 10803200, 4096", "1,115697172480,512"],
    ),
    (
        |text, size, parsers| both(Fiu::default, text, size, parsers),
        "",
        &[
            "89966104712 4892 syslogd 904265560 8 W 6 0 531e779d",
            "89966104713 4892 my process 115697172480 16 R 6 1 0",
            "89966104714 4892 5 6 8 W 6 0 531e779d",
        ],
    ),
    (
        |text, size, parsers| both(|| Mobile, text, size, parsers),
        "proces,device,rw_flag,sector,size,timestamp\n",
        &[
            "kworker/4:1H-225,sda,W,904265560,8,159273.000100",
            "<...>-7,sdb,R,16,8,159273.5",
            "Binder:1-1873,8388608,W,2048,256,5218128.1812390005",
            "fio-7,sda,R,16,8,159273.1234567890123456789",
            "\"a,b-7\",sda,R,16,8,159273.5",
            "preconditioning_ended,sda,R,16,8,159273.5",
        ],
    ),
    (
        |text, size, parsers| both(Biosnoop::default, text, size, parsers),
        "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)\n",
        &[
            "0.000004    fio            2471    nvme0n1   W 904265560  4096      0.01    0.05",
            "0.000005    my process     2471    sda       R 16         512       0.00  123.456789",
            "0.000006                   0       sda       F 0          0         0.00    0.01",
        ],
    ),
    (
        |text, size, parsers| both(Csv::default, text, size, parsers),
        "time_ns,device,kind,start,length,latency_ns,process,error,file_system,x\n",
        &[
            "5480,nvme0n1,read,115697172480,8192,122480,kworker/u8:2,0,,1",
            "6000,,write,0,512,,,5,,",
            "7000,sda,free,0,512,,,0,/home,",
            "8000,\"s,a\",read,1.0,512,nan,,0,,",
        ],
    ),
    (
        |text, size, parsers| both(Blkparse::default, text, size, parsers),
        "",
        &[
            "259,0    1        4     0.000006000  2471  D  WS 0 + 8 [fio]",
            "259,0    1        5     0.000008000     0  C  WS 0 + 8 [0]",
            "259,0    1        6     0.000010000  2471  Q   D 225971040 + 16 [a [b] c]",
            "259,0    1     0.000010000  2471  G   W 225971040 + 16 [jbd2/vda1-8]",
            "259,0    1        6     0.000010000  2471  A   W 4096 + 16 <- (259,1) 2048",
            "259,0    1        7     0.000010000     0  C   W 225971040 + 16 [65531]",
            "259,0    1        8     0.000010000     0  D  FN [kworker]",
            "CPU0 (vda):",
        ],
    ),
    (
        |text, size, parsers| both(Ftrace::default, text, size, parsers),
        "# tracer: nop\n",
        &[
            "             fio-2471    [000] .....  1234.000000: block_rq_issue: 259,0 WS 4096 () 0 + 8 none,0,0 [fio]",
            "          <idle>-0       [001] .....  1234.000005: block_rq_complete: 259,0 WS () 0 + 8 none,0,0 [0]",
            "             fio  2471 [000]  1234.000006: block:block_rq_issue: 259,0 R 4096 () 225971040 + 8 [fio]",
            "             fio-2471  [000]  1234.000007: block_rq_issue:       259,0 DS 4096 () 225971040 + 8 [fio]",
            "             fio-2471    [000] .....  1234.000008: block_rq_complete: 259,0 WS () 0 + 8 none,0,0 [-5]",
            "             fio-2471    [000] .....  1234.000008: block_rq_complete: 259,0 FF () 18446744073709551615 + 0 none,0,0 [0]",
            "CPU:1 [LOST 42 EVENTS]",
        ],
    ),
];

/// Lines; some have another byte somewhere.
fn lines() -> impl Strategy<Value = Vec<(Index, Option<(Index, u8)>)>> {
    let byte = prop::sample::select(b" 0159,.:[]+-\"xW\t\r\0\n\xff".to_vec());
    let change = prop::option::weighted(0.3, (any::<Index>(), byte));
    prop::collection::vec((any::<Index>(), change), 0..12)
}

proptest! {
    #[test]
    fn ways_of_parsing_have_the_same_results(
        case in 0..CASES.len(),
        lines in lines(),
        size in 1..200_usize,
        parsers in 1..4_usize,
    ) {
        let (both, head, samples) = CASES[case];
        let mut text = head.as_bytes().to_vec();
        for (line, change) in lines {
            let mut line = line.get(samples).as_bytes().to_vec();
            if let Some((place, byte)) = change {
                let place = place.index(line.len());
                line[place] = byte;
            }
            text.extend(line);
            text.push(b'\n');
        }
        let [[quick, thorough], [alone, together]] = both(&text, size, parsers);
        prop_assert_eq!(quick, thorough, "{}", String::from_utf8_lossy(&text));
        prop_assert_eq!(alone, together, "{}", String::from_utf8_lossy(&text));
    }
}
