//! The heap as a map: a square for each cell, coloured by type and darker with fullness.

use std::fmt::Write as _;

use super::text::{escaped, time};
use crate::track::{Cell, HeapTrack};

/// The types that maps show, by number.
pub(super) const TYPES: [&str; 6] =
    ["unmovable", "movable", "reclaimable", "highatomic", "CMA", "isolated"];

/// One policy's heap over time.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) title: String,
    pub(super) heap: HeapTrack,
    /// Its place in the page's data.
    pub(super) at: String,
}

pub(super) const WIDTH: f64 = super::plot::WIDTH;

impl Map {
    /// Returns the number of columns, about twice the number of rows.
    fn columns(&self) -> usize {
        let cells = self.heap.frames.first().map_or(1, |f| f.len() / 2);
        ((cells as f64 * 2.0).sqrt().ceil() as usize).next_multiple_of(8)
    }

    fn size(&self) -> f64 {
        WIDTH / self.columns() as f64
    }

    pub(super) fn height(&self) -> f64 {
        let cells = self.heap.frames.first().map_or(1, |f| f.len() / 2);
        cells.div_ceil(self.columns()) as f64 * self.size()
    }

    /// Describes a frame in words.
    pub(super) fn words(&self, frame: usize) -> String {
        let ns = self.heap.times_ns.get(frame).copied().unwrap_or(0);
        let pages = self.heap.in_use.get(frame).copied().unwrap_or(0);
        format!("{}: {} pages in use", time(ns as f64), super::text::number(pages as f64))
    }

    /// Returns the last frame at or before a time.
    pub(super) fn frame_at(&self, ns: f64) -> usize {
        self.heap.times_ns.partition_point(|&t| t as f64 <= ns).max(1) - 1
    }

    /// Returns the SVG element of a frame with the attributes `more`.
    pub(super) fn svg(&self, frame: usize, more: &str) -> String {
        let mut s = format!(
            "<svg class=\"map\" viewBox=\"0 0 {WIDTH} {:.2}\" role=\"img\" aria-label=\"{}\" \
             data-heap=\"{}\" data-columns=\"{}\" data-frame=\"{frame}\"{more}><g class=\"cells\">",
            self.height(),
            escaped(&format!("{}: map of {} pageblocks", self.title, self.heap.pageblocks)),
            escaped(&self.at),
            self.columns(),
        );
        self.cells(&mut s, &self.heap.cells(frame));
        s.push_str("</g></svg>");
        s
    }

    /// Writes a path for each colour. The page's script draws the same paths.
    fn cells(&self, s: &mut String, cells: &[Cell]) {
        let (columns, size) = (self.columns(), self.size());
        for kind in 0..TYPES.len() as u8 {
            for fullness in 0..16 {
                let wanted = Cell { migrate_type: kind, fullness };
                let mut d = String::new();
                for (i, _) in cells.iter().enumerate().filter(|(_, c)| **c == wanted) {
                    let (x, y) = ((i % columns) as f64 * size, (i / columns) as f64 * size);
                    let _ = write!(d, "M{x:.2} {y:.2}h{0:.2}v{0:.2}h-{0:.2}z", size * 0.9);
                }
                if !d.is_empty() {
                    let _ = write!(s, "<path class=\"t{kind} f{fullness}\" d=\"{d}\"/>");
                }
            }
        }
    }
}
