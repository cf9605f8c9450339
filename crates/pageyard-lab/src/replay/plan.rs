//! The plan of a replay: the operations that the trace requires of an allocator, including
//! everything that its events do not show. It is stored in a temporary file, 16 bytes per
//! operation. So any number of policies and seeds can read it without decoding the trace again.

use std::fs::File;
use std::io::{BufWriter, Write};

use pageyard_machine::Stop;

use super::error::ReplayError;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum OpKind {
    /// A request that the kernel served with this block.
    Alloc = 0,
    /// A free.
    Free = 1,
    /// A free that bypasses the per-CPU lists: the kernel found them locked.
    FreeDirect = 2,
    /// A page that left its list without an event (spec §6.1: bulk requests have none).
    Silent = 3,
    /// A drain of all CPUs' lists of the frame's zone (spec §5.16).
    DrainAll = 4,
    /// A start of background reclaim on the node of the frame's zone (spec §7.2).
    ReclaimBegins = 5,
    /// An end of background reclaim on that node.
    ReclaimEnds = 6,
    /// A request that failed, for the frame's zone or a lower one.
    Refused = 7,
    /// A free by compaction, which moved the block to another frame. No event shows which.
    Migrated = 8,
    /// A request that the kernel served with a block which its compaction had just made (spec §7.7).
    Captured = 9,
}

/// The task and the flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The trace's number of the task.
    pub(super) task: u32,
    /// All request flags.
    pub(super) gfp: u32,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    /// Time in nanoseconds, in the trace's clock.
    pub(super) t_ns: u64,
    /// The recorded block's first frame, counted from the machine's lowest frame.
    pub(super) frame: u32,
    pub(super) kind: OpKind,
    pub(super) order: u8,
    pub(super) migratetype: u8,
    pub(super) cpu: u16,
    /// The relevant request flags; see [`pack_gfp`].
    pub(super) gfp: u8,
    /// The task and all flags of a request, if the plan keeps them; else 0.
    pub(super) origin: Origin,
}

/// Bit numbers of the request flags that matter (spec §2.1): HIGH, DIRECT_RECLAIM, KSWAPD_RECLAIM,
/// MEMALLOC, NOMEMALLOC, DMA and DMA32. The migrate type is stored separately.
const GFP_BITS: [u32; 7] = [5, 10, 11, 17, 19, 0, 2];

/// The flags DMA and DMA32.
pub(super) const ZONE_BITS: u32 = 5;

/// Packs the relevant request flags into seven bits.
#[inline(always)]
pub(super) const fn pack_gfp(gfp: u32) -> u8 {
    let (mut out, mut i) = (0, 0);
    while i < GFP_BITS.len() {
        out |= (gfp >> GFP_BITS[i] & 1) << i;
        i += 1;
    }
    out as u8
}

/// Unpacks the flags from [`pack_gfp`].
#[inline(always)]
pub(super) const fn unpack_gfp(bits: u8) -> u32 {
    let (mut out, mut i) = (0, 0);
    while i < GFP_BITS.len() {
        out |= (bits as u32 >> i & 1) << GFP_BITS[i];
        i += 1;
    }
    out
}

const SIZE: usize = 16;

impl Op {
    #[inline(always)]
    fn pack(self) -> [u8; SIZE] {
        let bits = self.kind as u32
            | u32::from(self.order & 15) << 4
            | u32::from(self.migratetype & 7) << 8
            | u32::from(self.cpu & 0xfff) << 11
            | u32::from(self.gfp & 127) << 23;
        let mut out = [0; SIZE];
        out[..8].copy_from_slice(&self.t_ns.to_le_bytes());
        out[8..12].copy_from_slice(&self.frame.to_le_bytes());
        out[12..].copy_from_slice(&bits.to_le_bytes());
        out
    }

    #[inline(always)]
    fn unpack(b: &[u8; SIZE]) -> Op {
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let bits = word(12);
        Op {
            t_ns: u64::from(word(0)) | u64::from(word(4)) << 32,
            frame: word(8),
            kind: match bits & 15 {
                0 => OpKind::Alloc,
                1 => OpKind::Free,
                2 => OpKind::FreeDirect,
                3 => OpKind::Silent,
                4 => OpKind::DrainAll,
                5 => OpKind::ReclaimBegins,
                6 => OpKind::ReclaimEnds,
                7 => OpKind::Refused,
                8 => OpKind::Migrated,
                _ => OpKind::Captured,
            },
            order: (bits >> 4 & 15) as u8,
            migratetype: (bits >> 8 & 7) as u8,
            cpu: (bits >> 11 & 0xfff) as u16,
            gfp: (bits >> 23 & 127) as u8,
            origin: Origin::default(),
        }
    }
}

/// Bytes of an operation's origin in the plan's second file.
const ORIGIN: usize = 8;

impl Origin {
    fn pack(self) -> [u8; ORIGIN] {
        (u64::from(self.task) | u64::from(self.gfp) << 32).to_le_bytes()
    }

    fn unpack(bytes: &[u8; ORIGIN]) -> Origin {
        let word = u64::from_le_bytes(*bytes);
        Origin { task: word as u32, gfp: (word >> 32) as u32 }
    }
}

/// Writes a plan.
pub(super) struct PlanWriter {
    /// The operations, and their origins; `None` if they are not kept.
    out: Option<BufWriter<File>>,
    origins: Option<BufWriter<File>>,
    written: u64,
    failed: Option<std::io::Error>,
}

fn temporary() -> Result<BufWriter<File>, ReplayError> {
    let file = tempfile::tempfile().map_err(ReplayError::Temporary)?;
    Ok(BufWriter::with_capacity(1 << 18, file))
}

fn finished(out: BufWriter<File>) -> Result<File, ReplayError> {
    out.into_inner().map_err(|e| ReplayError::Temporary(e.into_error()))
}

impl PlanWriter {
    /// Creates a plan, with the origin of each operation or without.
    pub(super) fn new(origins: bool) -> Result<PlanWriter, ReplayError> {
        let (out, origins) = (Some(temporary()?), origins.then(temporary).transpose()?);
        Ok(PlanWriter { out, origins, written: 0, failed: None })
    }

    /// Creates a plan that is only counted.
    pub(super) fn discarded() -> PlanWriter {
        PlanWriter { out: None, origins: None, written: 0, failed: None }
    }

    /// Returns the number of operations written so far.
    pub(super) fn len(&self) -> u64 {
        self.written
    }

    /// Appends an operation. [`finish`](PlanWriter::finish) reports a failure.
    #[inline(always)]
    pub(super) fn push(&mut self, op: Op) {
        let origin = self.origins.as_mut().map(|out| out.write_all(&op.origin.pack()));
        let op = self.out.as_mut().map(|out| out.write_all(&op.pack()));
        for e in [op, origin].into_iter().flatten().filter_map(Result::err) {
            self.failed.get_or_insert(e);
        }
        self.written += 1;
    }

    pub(super) fn finish(self) -> Result<Plan, ReplayError> {
        if let Some(e) = self.failed {
            return Err(ReplayError::Temporary(e));
        }
        let (Some(out), origins) = (self.out, self.origins) else {
            return Ok(Plan { file: finished(temporary()?)?, origins: None, len: 0 });
        };
        let origins = origins.map(finished).transpose()?;
        Ok(Plan { file: finished(out)?, origins, len: self.written })
    }
}

/// A finished plan.
pub(super) struct Plan {
    file: File,
    origins: Option<File>,
    pub(super) len: u64,
}

/// Number of operations read at once.
const GROUP: usize = 1 << 14;

impl Plan {
    /// Calls `each` with every operation in order, and its number.
    ///
    /// # Errors
    /// Fails if the plan cannot be read, or if `stop` is requested.
    pub(super) fn for_each(
        &self,
        stop: &Stop,
        mut each: impl FnMut(u64, &Op),
    ) -> Result<(), ReplayError> {
        let mut bytes = vec![0; GROUP * SIZE];
        let mut origins = vec![0; if self.origins.is_some() { GROUP * ORIGIN } else { 0 }];
        let mut number = 0;
        while number < self.len {
            if stop.is_requested() {
                return Err(ReplayError::Stopped);
            }
            let n = (self.len - number).min(GROUP as u64) as usize;
            let part = &mut bytes[..n * SIZE];
            read_at(&self.file, part, number * SIZE as u64).map_err(ReplayError::Temporary)?;
            if let Some(file) = &self.origins {
                let part = &mut origins[..n * ORIGIN];
                read_at(file, part, number * ORIGIN as u64).map_err(ReplayError::Temporary)?;
            }
            let ((ops, _), (origins, _)) =
                (part.as_chunks::<SIZE>(), origins.as_chunks::<ORIGIN>());
            for (i, op) in ops.iter().enumerate() {
                let origin = origins.get(i).map(Origin::unpack).unwrap_or_default();
                each(number, &Op { origin, ..Op::unpack(op) });
                number += 1;
            }
        }
        Ok(())
    }
}

/// Several threads read a plan at once, so the file's own position cannot be used.
#[cfg(unix)]
fn read_at(file: &File, part: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, part, offset)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, part: &mut [u8], offset: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock();
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_survive_encoding() {
        let ops: Vec<Op> = (0..40_000u64)
            .map(|i| Op {
                t_ns: i << 40 | i,
                frame: (i * 7919) as u32,
                kind: [
                    OpKind::Alloc,
                    OpKind::Free,
                    OpKind::FreeDirect,
                    OpKind::Silent,
                    OpKind::DrainAll,
                    OpKind::ReclaimBegins,
                    OpKind::ReclaimEnds,
                    OpKind::Refused,
                    OpKind::Migrated,
                    OpKind::Captured,
                ][i as usize % 10],
                order: (i % 11) as u8,
                migratetype: (i % 6) as u8,
                cpu: (i % 4096) as u16,
                gfp: (i % 128) as u8,
                origin: Origin { task: (i * 31) as u32, gfp: !(i as u32) },
            })
            .collect();
        for origins in [true, false] {
            let mut writer = PlanWriter::new(origins).unwrap();
            ops.iter().for_each(|&op| writer.push(op));
            let plan = writer.finish().unwrap();
            let want = |op: &Op| match origins {
                true => *op,
                false => Op { origin: Origin::default(), ..*op },
            };
            for _ in 0..2 {
                let mut got = Vec::new();
                plan.for_each(&Stop::default(), |n, op| {
                    assert_eq!(n, got.len() as u64);
                    got.push(*op);
                })
                .unwrap();
                assert!(got.iter().zip(&ops).all(|(got, op)| *got == want(op)));
                assert_eq!(got.len(), ops.len());
            }
        }
    }

    #[test]
    fn flags_survive_encoding() {
        for bits in 0..128 {
            assert_eq!(pack_gfp(unpack_gfp(bits)), bits);
        }
        assert_eq!(unpack_gfp(pack_gfp(0xffff_ffff)), 0xa0c25);
    }
}
