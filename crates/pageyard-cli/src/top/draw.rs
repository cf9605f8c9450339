//! Drawing of one yard.

use pageyard_host::{CpuStatus, YardStats, ZoneStatus};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Table};

const NS: f64 = 1e9;
/// Minimum number of lines of a zone.
const ZONE_LINES: u16 = 9;

/// A yard now and at an earlier moment; the view shows the changes between the two as rates per
/// second.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Current statistics.
    pub(crate) now: YardStats,
    /// Earlier statistics; the same as `now` if there are none.
    pub(crate) before: YardStats,
    /// Number of this yard among those of the process, from 1, and their total.
    pub(crate) which: (usize, usize),
}

impl View {
    fn rate(&self, now: u64, before: u64) -> f64 {
        let seconds = self.now.at_ns.saturating_sub(self.before.at_ns) as f64 / NS;
        if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
    }
}

fn size(pages: u64) -> String {
    let kib = pages.saturating_mul(4);
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..0x10_0000 => format!("{:.1} MiB", kib as f64 / 1024.0),
        _ => format!("{:.2} GiB", kib as f64 / 1024.0 / 1024.0),
    }
}

/// Formats a rate in few digits.
fn short(n: f64) -> String {
    match n {
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 10e6 => format!("{:.0}k", n / 1e3),
        n => format!("{:.0}M", n / 1e6),
    }
}

fn ratio(part: u64, all: u64) -> f64 {
    (part as f64 / all.max(1) as f64).clamp(0.0, 1.0)
}

/// Draws the view.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View) {
    // No more zones than fit: a layout of many parts is slow.
    let room = 1 + usize::from(frame.area().height.saturating_sub(7) / ZONE_LINES);
    let zones = view.now.zones.len().min(room);
    let heights =
        [Constraint::Length(6)].into_iter().chain((0..zones).map(|_| Constraint::Min(ZONE_LINES)));
    let parts = Layout::vertical(heights.chain([Constraint::Length(1)])).split(frame.area());
    summary(frame, parts[0], view);
    for (i, zone) in view.now.zones.iter().take(zones).enumerate() {
        let before = view.before.zones.get(i).unwrap_or(zone);
        draw_zone(frame, parts[i + 1], view, zone, before);
    }
    let keys = "q quit   n next yard   map: U unmovable M movable R reclaimable H reserved C I";
    frame.render_widget(Paragraph::new(keys).dim(), parts[zones + 1]);
}

fn summary(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let y = &view.now;
    let (n, of) = view.which;
    let title = format!(" pageyard top: process {}, yard {n} of {of} ", y.pid);
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows = Layout::vertical([Constraint::Length(1); 4]).split(inner);
    let gauges = [("in use", y.used), ("resident", y.resident)];
    for (row, (name, pages)) in rows.iter().zip(gauges) {
        let label = format!("{name} {} of {}", size(pages), size(y.pages));
        let bar = Gauge::default().ratio(ratio(pages, y.pages)).label(label);
        frame.render_widget(bar.gauge_style(Style::new().fg(Color::Blue)), *row);
    }
    let color = match y.level.as_str() {
        "critical" => Color::Red,
        "moderate" => Color::Yellow,
        _ => Color::Green,
    };
    let limit = |l: Option<u64>| l.map_or("none".into(), size);
    let pressure = Line::from(vec![
        Span::raw("pressure "),
        Span::styled(y.level.clone(), Style::new().fg(color)),
        Span::raw(format!(
            "   limits: soft {}, hard {}   shrunk {}   moved {} blocks",
            limit(y.soft_limit),
            limit(y.hard_limit),
            size(y.shrunk),
            y.moved
        )),
    ]);
    frame.render_widget(Paragraph::new(pressure), rows[2]);
    let back = format!(
        "given back {} ({}/s), fetched again {} ({}/s), target {}",
        size(y.given_back),
        size(view.rate(y.given_back, view.before.given_back) as u64),
        size(y.fetched),
        size(view.rate(y.fetched, view.before.fetched) as u64),
        size(y.target),
    );
    frame.render_widget(Paragraph::new(back), rows[3]);
}

fn draw_zone(frame: &mut Frame<'_>, area: Rect, view: &View, z: &ZoneStatus, before: &ZoneStatus) {
    let title = format!(" node {}, zone {} ", z.node, z.kind);
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows = [Constraint::Length(4), Constraint::Min(2)];
    let parts = Layout::vertical(rows).split(inner);
    let [min, low, high] = z.watermarks;
    let marks = format!(
        "free {} of {}, on lists {}   watermarks {min} {low} {high} +{} pages",
        size(z.free),
        size(z.managed),
        size(z.cached),
        z.boost
    );
    let lock = format!(
        "zone lock {}/s   lists busy {}/s   failed {}   steals {}",
        short(view.rate(z.lock_holds, before.lock_holds)),
        short(view.rate(z.bypasses, before.bypasses)),
        z.failures,
        z.steals
    );
    let (columns, lines) = (usize::from(area.width), usize::from(area.height));
    let unusable = z.unusable.iter().take(columns).map(|(o, n)| {
        let whole = u64::from(*n) / 10;
        format!("  order {o} {whole}%")
    });
    let blocks = z.free_blocks.iter().take(columns).map(|n| format!(" {n}")).collect::<String>();
    let text = vec![
        Line::from(marks),
        Line::from(lock),
        Line::from(format!("free blocks{blocks}   unusable{}", unusable.collect::<String>())),
        Line::from(z.map.chars().take(columns).map(place).collect::<Vec<_>>()),
    ];
    frame.render_widget(Paragraph::new(text), parts[0]);
    let cells = |c: &CpuStatus| {
        let was = before.cpus.iter().find(|b| b.cpu == c.cpu).unwrap_or(c);
        let asked = c.allocs.saturating_sub(was.allocs);
        let hits = c.hits.saturating_sub(was.hits);
        let hit =
            hits.saturating_mul(100).checked_div(asked).map_or("-".into(), |p| format!("{p}%"));
        Row::new([
            format!("{}", c.cpu),
            format!("{}", c.count),
            format!("{}", c.high),
            format!("{}-{}", c.high_min, c.high_max),
            format!("{}x2^{}", c.batch, c.alloc_factor),
            short(view.rate(c.allocs, was.allocs)),
            short(view.rate(c.frees, was.frees)),
            hit,
            short(view.rate(c.refills, was.refills)),
            short(view.rate(c.drains, was.drains)),
        ])
    };
    let names = [
        "CPU", "count", "high", "between", "batch", "alloc/s", "free/s", "hits", "refill/s",
        "drain/s",
    ];
    let head = Row::new(names.map(Cell::from)).bold();
    let widths = [4, 7, 7, 12, 9, 8, 8, 5, 9, 8].map(Constraint::Length);
    let cpus = z.cpus.iter().take(lines).map(cells);
    frame.render_widget(Table::new(cpus, widths).header(head), parts[1]);
}

/// Colours a letter of the fragmentation map.
fn place(letter: char) -> Span<'static> {
    let color = match letter {
        'M' => Color::Green,
        'R' => Color::Yellow,
        'U' => Color::Red,
        _ => Color::Magenta,
    };
    Span::styled(letter.to_string(), Style::new().fg(color))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn yard() -> YardStats {
        let cpu = |cpu| CpuStatus {
            cpu,
            count: 55,
            high: 186,
            high_min: 100,
            high_max: 900,
            batch: 63,
            alloc_factor: 2,
            allocs: 1000,
            frees: 900,
            hits: 980,
            refills: 20,
            drains: 3,
        };
        let zone = ZoneStatus {
            node: 0,
            kind: "Normal".into(),
            managed: 16_384,
            free: 10_000,
            cached: 110,
            watermarks: [256, 320, 384],
            free_blocks: vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
            unusable: vec![(9, 250)],
            map: "UUMMR".into(),
            lock_holds: 500,
            ..ZoneStatus::default()
        };
        let zone = ZoneStatus { cpus: vec![cpu(0), cpu(1)], ..zone };
        YardStats {
            pid: 77,
            at_ns: 1_000_000_000,
            level: "moderate".into(),
            pages: 16_384,
            used: 6000,
            resident: 8000,
            target: 6750,
            soft_limit: Some(5120),
            zones: vec![zone],
            ..YardStats::default()
        }
    }

    fn picture(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content().iter().map(|c| c.symbol()).collect();
        cells.chunks(width.into()).map(|row| row.concat() + "\n").collect()
    }

    #[test]
    fn a_yard_is_drawn_with_rates_per_second() {
        let before = yard();
        let mut now = yard();
        now.at_ns += 2_000_000_000;
        now.zones[0].lock_holds += 3000;
        let cpu = &mut now.zones[0].cpus[1];
        (cpu.allocs, cpu.hits, cpu.refills) = (cpu.allocs + 4000, cpu.hits + 3000, cpu.refills + 8);
        let text = picture(&View { now, before, which: (1, 2) }, 110, 24);
        for wanted in [
            "process 77, yard 1 of 2",
            "in use 23.4 MiB of 64.0 MiB",
            "pressure moderate",
            "soft 20.0 MiB, hard none",
            "watermarks 256 320 384 +0 pages",
            "zone lock 1500/s",
            "free blocks 1 2 3 4 5 6 7 8 9 10 11   unusable  order 9 25%",
            "UUMMR",
            "100-900",
            "63x2^2",
        ] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        let row = text.lines().find(|l| l.starts_with("│1 ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert!(cells.contains(&"2000") && cells.contains(&"75%") && cells.contains(&"4"), "{row}");
        let idle = text.lines().find(|l| l.starts_with("│0 ")).unwrap();
        assert!(idle.contains(" - "), "no requests, no share of hits: {idle}");
    }

    /// Another process may publish any figures: it may be of another version, or hostile.
    #[test]
    fn any_figures_can_be_drawn() {
        let most = |cpu| CpuStatus {
            cpu,
            count: i32::MAX,
            high: i32::MIN,
            high_min: i32::MIN,
            high_max: i32::MAX,
            batch: i32::MAX,
            alloc_factor: u8::MAX,
            allocs: u64::MAX,
            frees: u64::MAX,
            hits: u64::MAX,
            refills: u64::MAX,
            drains: u64::MAX,
        };
        let zone = ZoneStatus {
            node: u16::MAX,
            kind: "\u{1b}[2J\u{9b}1m\n".into(),
            managed: u64::MAX,
            free: u64::MAX,
            cached: u64::MAX,
            watermarks: [u64::MAX; 3],
            boost: u64::MAX,
            free_blocks: vec![u64::MAX; 10_000],
            unusable: vec![(u8::MAX, u32::MAX); 10_000],
            map: "\u{1b}".repeat(10_000),
            lock_holds: u64::MAX,
            cpus: (0..10_000).map(most).collect(),
            ..ZoneStatus::default()
        };
        let now = YardStats {
            pid: u32::MAX,
            at_ns: u64::MAX,
            level: "\u{1b}]0;owned\u{7}".into(),
            pages: u64::MAX,
            used: u64::MAX,
            resident: u64::MAX,
            target: u64::MAX,
            hard_limit: Some(u64::MAX),
            given_back: u64::MAX,
            zones: vec![zone; 50],
            ..YardStats::default()
        };
        let mut before = now.clone();
        before.at_ns -= 1;
        before.given_back = 0;
        before.zones[0].cpus[0].allocs = 0;
        before.zones[0].cpus[0].hits = 0;
        for (width, height) in [(1, 1), (80, 24), (300, 100)] {
            let view = View { now: now.clone(), before: before.clone(), which: (1, 1) };
            let text = picture(&view, width, height);
            assert!(!text.contains(|c: char| c != '\n' && c.is_control()), "{text}");
        }
    }

    #[test]
    fn any_screen_size_can_be_drawn() {
        let view = View { now: yard(), before: yard(), which: (1, 1) };
        for (width, height) in [(1, 1), (10, 5), (80, 12), (300, 100)] {
            picture(&view, width, height);
        }
        let empty = YardStats::default();
        picture(&View { now: empty.clone(), before: empty, which: (1, 1) }, 80, 24);
    }
}
