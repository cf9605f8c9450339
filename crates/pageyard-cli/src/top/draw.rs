//! Drawing of one yard.

use pageyard_host::{CpuStatus, YardStats, ZoneStatus};
use pageyard_lab::format::{grouped, pages, rate};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Table};

const NS: f64 = 1e9;
/// Number of lines above the zones.
const SUMMARY_LINES: u16 = 8;
/// Minimum number of lines of a zone.
const ZONE_LINES: u16 = 9;
/// Shown in place of the figures that a process of an older version does not publish.
pub(crate) const NOT_PUBLISHED: &str =
    "allocations by order, thread cache: not published; the process uses an older pageyard-host";

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

fn ratio(part: u64, all: u64) -> f64 {
    (part as f64 / all.max(1) as f64).clamp(0.0, 1.0)
}

/// Draws the view.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View) {
    // No more zones than fit: a layout of many parts is slow.
    let room = 1 + usize::from(frame.area().height.saturating_sub(SUMMARY_LINES + 1) / ZONE_LINES);
    let zones = view.now.zones.len().min(room);
    let heights = [Constraint::Length(SUMMARY_LINES)]
        .into_iter()
        .chain((0..zones).map(|_| Constraint::Min(ZONE_LINES)));
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
    let title =
        format!(" pageyard top: process {}, yard {n} of {of}{} ", y.pid, super::read::age(y.at_ns));
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows = Layout::vertical([Constraint::Length(1); 6]).split(inner);
    let gauges = [("in use", y.used), ("resident", y.resident)];
    for (row, (name, n)) in rows.iter().zip(gauges) {
        let label = format!("{name} {} of {}", pages(n), pages(y.pages));
        let bar = Gauge::default().ratio(ratio(n, y.pages)).label(label);
        frame.render_widget(bar.gauge_style(Style::new().fg(Color::Blue)), *row);
    }
    let color = match y.level.as_str() {
        "critical" => Color::Red,
        "moderate" => Color::Yellow,
        _ => Color::Green,
    };
    let limit = |l: Option<u64>| l.map_or("none".into(), pages);
    let pressure = Line::from(vec![
        Span::raw("pressure "),
        Span::styled(y.level.clone(), Style::new().fg(color)),
        Span::raw(format!(
            "   limits: soft {}, hard {}   shrunk {}   moved {} blocks",
            limit(y.soft_limit),
            limit(y.hard_limit),
            pages(y.shrunk),
            grouped(y.moved)
        )),
    ]);
    frame.render_widget(Paragraph::new(pressure), rows[2]);
    let back = format!(
        "given back {} ({}/s), fetched again {} ({}/s), target {}",
        pages(y.given_back),
        pages(view.rate(y.given_back, view.before.given_back) as u64),
        pages(y.fetched),
        pages(view.rate(y.fetched, view.before.fetched) as u64),
        pages(y.target),
    );
    frame.render_widget(Paragraph::new(back), rows[3]);
    frame.render_widget(Paragraph::new(requests(view)), rows[4]);
    frame.render_widget(Paragraph::new(thread_cache(view)), rows[5]);
}

/// Increase of a list of counters, by index, per second.
fn rates(view: &View, of: fn(&YardStats) -> &[u64]) -> Vec<f64> {
    let before = of(&view.before).iter().chain(std::iter::repeat(&0));
    of(&view.now).iter().zip(before).map(|(n, b)| view.rate(*n, *b)).collect()
}

/// What callers allocate and free, by order.
fn requests(view: &View) -> String {
    if view.now.allocs.is_empty() {
        return NOT_PUBLISHED.into();
    }
    let allocs = rates(view, |y| &y.allocs[..y.allocs.len().min(11)]);
    let frees = rates(view, |y| &y.frees[..y.frees.len().min(11)]);
    let busy = allocs.iter().enumerate().filter(|(_, n)| **n > 0.0);
    let by_order: String = busy.map(|(o, n)| format!("  order {o}: {}/s", rate(*n))).collect();
    let (all, freed) = (rate(allocs.iter().sum()), rate(frees.iter().sum()));
    format!("allocations {all}/s, frees {freed}/s  {by_order}")
}

fn thread_cache(view: &View) -> String {
    let (now, before) = (&view.now.thread_cache, &view.before.thread_cache);
    if !now.on {
        // The line above says so if it is not published.
        let known = !view.now.allocs.is_empty();
        return if known { "thread cache: none".into() } else { String::new() };
    }
    let hits = view.rate(now.hits, before.hits);
    let allocs: f64 = rates(view, |y| &y.allocs).iter().sum();
    let share = if allocs > 0.0 {
        format!("{:.0}%", (100.0 * hits / allocs).min(100.0))
    } else {
        "-".to_owned()
    };
    format!(
        "thread cache {}/s ({share} of allocations)   {} threads, {}{}   refills {}/s, flushes \
         {}/s, drains {}/s",
        rate(hits),
        now.threads,
        pages(now.pages),
        if now.pressed { ", off: memory is short" } else { "" },
        rate(view.rate(now.refills, before.refills)),
        rate(view.rate(now.flushes, before.flushes)),
        rate(view.rate(now.drains, before.drains)),
    )
}

fn draw_zone(frame: &mut Frame<'_>, area: Rect, view: &View, z: &ZoneStatus, before: &ZoneStatus) {
    let title = format!(" node {}, zone {} ", z.node, z.kind);
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows = [Constraint::Length(4), Constraint::Min(2)];
    let parts = Layout::vertical(rows).split(inner);
    let [min, low, high] = z.watermarks.map(pages);
    let marks = format!(
        "free {} of {}, on lists {}   watermarks {min}, {low}, {high}, boost {}",
        pages(z.free),
        pages(z.managed),
        pages(z.cached),
        pages(z.boost)
    );
    let lock = format!(
        "zone lock {}/s   lists busy {}/s   failed {}   steals {}",
        rate(view.rate(z.lock_holds, before.lock_holds)),
        rate(view.rate(z.bypasses, before.bypasses)),
        grouped(z.failures),
        grouped(z.steals)
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
        // The packed engine tunes nothing.
        let tuned = |text: String| if c.batch == 0 { "-".to_owned() } else { text };
        Row::new([
            format!("{}", c.cpu),
            format!("{}", c.count),
            tuned(format!("{}", c.high)),
            tuned(format!("{}-{}", c.high_min, c.high_max)),
            tuned(format!("{}x2^{}", c.batch, c.alloc_factor)),
            rate(view.rate(c.allocs, was.allocs)),
            rate(view.rate(c.frees, was.frees)),
            hit,
            rate(view.rate(c.refills, was.refills)),
            rate(view.rate(c.drains, was.drains)),
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
            allocs: vec![0; 11],
            frees: vec![0; 11],
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
            "process 77, yard 1 of 2, figures ",
            "in use 23.4 MiB of 64 MiB",
            "pressure moderate",
            "soft 20 MiB, hard none",
            "watermarks 1 MiB, 1.2 MiB, 1.5 MiB, boost 0 B",
            "zone lock 1.5 k/s",
            "free blocks 1 2 3 4 5 6 7 8 9 10 11   unusable  order 9 25%",
            "UUMMR",
            "100-900",
            "63x2^2",
        ] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        let row = text.lines().find(|l| l.starts_with("│1 ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert!(row.contains(" 2.0 k ") && cells.contains(&"75%") && cells.contains(&"4"), "{row}");
        let idle = text.lines().find(|l| l.starts_with("│0 ")).unwrap();
        assert!(idle.contains(" - "), "no requests, no share of hits: {idle}");
    }

    /// Requests that the thread cache serves never reach the lists.
    #[test]
    fn requests_through_the_thread_cache_are_drawn() {
        let (before, mut now) = (yard(), yard());
        now.at_ns += 2_000_000_000;
        (now.allocs[0], now.allocs[9], now.frees[0]) = (66_000_000, 240, 66_000_100);
        let cache = &mut now.thread_cache;
        (cache.on, cache.threads, cache.pages, cache.hits) = (true, 4, 300, 33_000_120);
        (cache.refills, cache.flushes) = (24, 6);
        let view = View { now, before, which: (1, 1) };
        let text = picture(&view, 110, 24);
        for wanted in [
            "allocations 33.0 M/s, frees 33.0 M/s    order 0: 33.0 M/s  order 9: 120/s",
            "thread cache 16.5 M/s (50% of allocations)   4 threads, 1.2 MiB   refills 12/s, \
             flushes 3/s, drains 0/s",
        ] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        let mut none = view.clone();
        none.now.thread_cache = Default::default();
        assert!(picture(&none, 110, 24).contains("thread cache: none"));
        // A process of an older version.
        none.now.allocs.clear();
        none.now.frees.clear();
        let text = picture(&none, 110, 24);
        assert!(text.contains("not published; the process uses an older pageyard-host"), "{text}");
        assert!(!text.contains("thread cache: none"), "{text}");
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
            allocs: vec![u64::MAX; 10_000],
            frees: vec![u64::MAX; 10_000],
            thread_cache: pageyard_host::ThreadCacheStats {
                on: true,
                threads: usize::MAX,
                pages: u64::MAX,
                hits: u64::MAX,
                ..Default::default()
            },
            zones: vec![zone; 50],
            ..YardStats::default()
        };
        let mut before = now.clone();
        before.at_ns -= 1;
        before.given_back = 0;
        before.allocs.clear();
        before.thread_cache.hits = 0;
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
