//! Figures of tracks: per-CPU lists, waiting, latency and the heap.

use super::axis::Axis;
use super::figure::{Body, Figure};
use super::map::Map;
use super::plot::{Array, Panel, Series, Shape};
use super::text::time;
use crate::track::{ListTrack, Track, ZoneTrack};

/// A track with its name and its place in the page's data.
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    pub(super) at: String,
    pub(super) track: &'a Track,
}

impl Named<'_> {
    fn times(&self) -> Array {
        let values = self.track.times_ns.iter().map(|&t| t as f64).collect();
        Array { values, at: format!("{}/times_ns", self.at) }
    }
}

/// Returns the figures of several policies under the same work. `clock` is the label of time.
pub(super) fn figures(tracks: &[Named<'_>], clock: &str) -> Vec<Figure> {
    let end = tracks.iter().map(|t| t.track.elapsed_ns).max().unwrap_or(0);
    let axis = || Axis::time(clock, end as f64);
    let mut all = lists(tracks, &axis);
    all.extend(zones(tracks, &axis));
    all.push(waiting(tracks, &axis));
    all.push(latency(tracks));
    all.push(waiting_by_cpu(tracks));
    all.push(heap(tracks, end, clock));
    all.retain(|f| !f.is_empty());
    all
}

fn label(l: &ListTrack) -> String {
    format!("CPU {}, node {} {}", l.cpu, l.node, l.zone)
}

fn lists(tracks: &[Named<'_>], axis: &dyn Fn() -> Axis) -> Vec<Figure> {
    // In the order of CPUs. The list shown first is the busiest of those that all tracks have.
    let mut keys: Vec<((u32, u16, &str), String)> = Vec::new();
    for l in tracks.iter().flat_map(|t| &t.track.lists) {
        let key = (l.cpu, l.node, l.zone.as_str());
        if let Err(at) = keys.binary_search_by(|k| k.0.cmp(&key)) {
            keys.insert(at, (key, label(l)));
        }
    }
    let labels: Vec<String> = keys.into_iter().map(|k| k.1).collect();
    let moves =
        |l: &&ListTrack| l.refills.iter().chain(&l.drains).copied().fold(0, u64::saturating_add);
    let busy = |wanted: &str| {
        let of =
            |t: &Named<'_>| t.track.lists.iter().find(|l| label(l) == wanted).map(|l| moves(&l));
        let found: Vec<u64> = tracks.iter().filter_map(of).collect();
        (found.len(), found.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)))
    };
    let shown = (0..labels.len()).rev().max_by_key(|&i| busy(&labels[i])).unwrap_or(0);
    let Some(shown_label) = labels.get(shown) else { return Vec::new() };
    let left_out = tracks.iter().map(|t| t.track.lists_left_out).max().unwrap_or(0);
    let left_out = match left_out {
        0 => String::new(),
        n => format!(" {n} less busy lists were not recorded."),
    };
    // Scale to the list that is shown, under all policies. The script does the same for others.
    let all = || tracks.iter().flat_map(|t| &t.track.lists).filter(|l| label(l) == *shown_label);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let high = most(&mut all().flat_map(|l| l.high.iter().chain(&l.count)).map(|&v| v as f64));
    let holds = most(&mut all().flat_map(|l| l.refills.iter().chain(&l.drains)).map(|&v| v as f64));
    let panel = |t: &Named<'_>, y: Axis, title: String, fields: [Field; 2]| {
        let index = t.track.lists.iter().position(|l| label(l) == *shown_label);
        let series = fields.into_iter().enumerate().map(|(i, f)| {
            let values = index.map(|at| (f.values)(&t.track.lists[at])).unwrap_or_default();
            let index = index.filter(|_| !values.is_empty());
            let at = index.map_or(String::new(), |n| format!("{}/lists/{n}/{}", t.at, f.field));
            let x = if index.is_some() { t.times() } else { Array::default() };
            let mut s = Series::arrays(f.name, i, f.shape, x, Array { values, at });
            (s.field, s.dashed) = (f.field, f.field == "high");
            s
        });
        let mut panel = Panel::new(&title, axis(), y, series.collect());
        panel.lists = format!("{}/lists", t.at);
        panel.left = 62.0;
        panel
    };
    let level: Vec<Panel> = tracks
        .iter()
        .map(|t| {
            let y = Axis::whole("on the lists", "pages", [high].into_iter());
            let lists = &t.track.lists;
            let title = match lists.iter().find(|l| label(l) == *shown_label) {
                None => format!("{}: these lists are not recorded", t.name),
                Some(l) if l.high.is_empty() => format!("{} (high is not recorded)", t.name),
                Some(_) => t.name.to_owned(),
            };
            panel(t, y, title, [COUNT, HIGH])
        })
        .collect();
    let moved: Vec<Panel> = tracks
        .iter()
        .map(|t| {
            let y = Axis::whole("per sample", "holds", [holds].into_iter());
            let period = time(t.track.period_ns as f64);
            panel(t, y, format!("{}, one sample per {period}", t.name), [REFILLS, DRAINS])
        })
        .collect();
    let levels = format!(
        "Base pages on one CPU's lists, and the limit above which a free drains them \
         (high).{left_out}"
    );
    let moves = "Number of times one CPU's lists were refilled from the zone or drained to it. Each \
                 holds the zone lock once.";
    let mut figures = vec![
        Figure::new("lists", "Per-CPU lists: count and high", &levels, Body::Panels(level)),
        Figure::new("moves", "Per-CPU lists: refills and drains", moves, Body::Panels(moved)),
    ];
    for f in &mut figures {
        (f.lists, f.shown) = (labels.clone(), shown);
    }
    figures
}

/// Returns the figures of the zones whose free pages change: free pages and watermarks, and free
/// pages by order.
fn zones(tracks: &[Named<'_>], axis: &dyn Fn() -> Axis) -> Vec<Figure> {
    let mut names: Vec<(u16, &str, u64)> = Vec::new();
    for z in tracks.iter().flat_map(|t| &t.track.zones) {
        let most = z.free.iter().copied().max().unwrap_or(0);
        let changes = z.free.iter().any(|&n| n != most);
        match names.iter_mut().find(|n| (n.0, n.1) == (z.node, z.zone.as_str())) {
            Some(found) => found.2 = found.2.max(most),
            None if changes => names.push((z.node, &z.zone, most)),
            None => {}
        }
    }
    // The largest first.
    names.sort_by_key(|n| (std::cmp::Reverse(n.2), n.0));
    names.truncate(ZONES);
    let mut figures = Vec::new();
    for (node, zone, _) in names {
        let of = |t: &Named<'_>| {
            t.track.zones.iter().position(|z| (z.node, z.zone.as_str()) == (node, zone))
        };
        let most = |value: &dyn Fn(&ZoneTrack) -> u64| {
            let zones = tracks.iter().filter_map(|t| of(t).map(|i| &t.track.zones[i]));
            zones.map(value).max().unwrap_or(0) as f64
        };
        let max = |values: &[u64]| values.iter().copied().max().unwrap_or(0);
        let highest = most(&|z| max(&z.free).max(max(&z.high)));
        let panels = |y: &Axis, series: &dyn Fn(&Named<'_>, &ZoneTrack, &str) -> Vec<Series>| {
            let panel = |t: &Named<'_>| {
                let i = of(t)?;
                let at = format!("{}/zones/{i}", t.at);
                let series = series(t, &t.track.zones[i], &at);
                let mut panel = Panel::new(t.name, axis(), y.clone(), series);
                panel.left = 62.0;
                Some(panel)
            };
            tracks.iter().filter_map(panel).collect::<Vec<_>>()
        };
        let line = |t: &Named<'_>, name: &str, colour: usize, values: &[u64], at: String| {
            let y = Array { values: floats(values, |v| v as f64), at };
            Series::arrays(name, colour, Shape::Line, t.times(), y)
        };
        let linear = Axis::whole("free", "pages", [highest].into_iter());
        let free = panels(&linear, &|t, z, at| {
            let rows = [("free", &z.free), ("MIN", &z.min), ("LOW", &z.low), ("HIGH", &z.high)];
            let fields = ["free", "min", "low", "high"];
            let series = rows.iter().zip(fields).enumerate().map(|(i, ((name, values), field))| {
                let mut s = line(t, name, i, values, format!("{at}/{field}"));
                s.dashed = i > 0;
                s
            });
            series.collect()
        });
        let log = Axis::log("free", "pages", [1.0, highest].into_iter());
        let orders = panels(&log, &|t, z, at| {
            let series = z.pages_by_order.iter().enumerate().map(|(order, values)| {
                let at = format!("{at}/pages_by_order/{order}");
                let mut s = line(t, &format!("order {order}"), order, values, at);
                s.dashed = order >= super::plot::COLOURS;
                s
            });
            series.collect()
        });
        let of = format!("node {node} {zone}");
        figures.push(Figure::new(
            "free",
            &format!("Free pages and watermarks: {of}"),
            "Pages in the zone's free lists, without those on per-CPU lists. For the recording they \
             are derived from its events and the state at its start.",
            Body::Panels(free),
        ));
        figures.push(Figure::new(
            "orders",
            &format!("Free pages by order: {of}"),
            "Pages in free blocks of each order; the axis is logarithmic, none lie at its lower end. For \
             the recording, free pages are merged as the buddy system merges them.",
            Body::Panels(orders),
        ));
    }
    figures
}

/// Zones that have figures.
const ZONES: usize = 3;

struct Field {
    name: &'static str,
    field: &'static str,
    shape: Shape,
    values: fn(&ListTrack) -> Vec<f64>,
}

fn floats<T: Copy>(values: &[T], to: fn(T) -> f64) -> Vec<f64> {
    values.iter().map(|&v| to(v)).collect()
}

const HIGH: Field = Field {
    name: "high",
    field: "high",
    shape: Shape::Steps,
    values: |l| floats(&l.high, |v| v as f64),
};
const COUNT: Field = Field {
    name: "count",
    field: "count",
    shape: Shape::Line,
    values: |l| floats(&l.count, |v| v as f64),
};
const REFILLS: Field = Field {
    name: "refills",
    field: "refills",
    shape: Shape::Since,
    values: |l| floats(&l.refills, |v| v as f64),
};
const DRAINS: Field = Field {
    name: "drains",
    field: "drains",
    shape: Shape::Since,
    values: |l| floats(&l.drains, |v| v as f64),
};

fn waiting(tracks: &[Named<'_>], axis: &dyn Fn() -> Axis) -> Figure {
    let series: Vec<_> = tracks
        .iter()
        .enumerate()
        .filter_map(|(i, t)| {
            let values = t.track.zone_wait.as_ref()?.waiting_cpus.clone();
            let y = Array { values, at: format!("{}/zone_wait/waiting_cpus", t.at) };
            Some(Series::arrays(t.name, i, Shape::Since, t.times(), y))
        })
        .collect();
    let tracks = tracks.iter().filter_map(|t| t.track.zone_wait.as_ref());
    let values = tracks.flat_map(|w| w.waiting_cpus.iter().copied());
    let y = Axis::linear("waiting", "CPUs", values);
    let panels = if series.is_empty() {
        Vec::new()
    } else {
        vec![Panel::new("All zones together", axis(), y, series)]
    };
    let note = "Number of CPUs spinning on a zone lock, averaged over each sample.";
    Figure::new("waiting", "Zone lock waiting over time", note, Body::Panels(panels))
}

fn waiting_by_cpu(tracks: &[Named<'_>]) -> Figure {
    let waits = || tracks.iter().filter_map(|t| t.track.zone_wait.as_ref());
    let most = waits().flat_map(|w| w.by_cpu_ns.iter().copied()).max().unwrap_or(0);
    let cpus = waits().map(|w| w.by_cpu_ns.len()).max().unwrap_or(0);
    let panels = tracks.iter().enumerate().filter_map(|(i, t)| {
        let wait = t.track.zone_wait.as_ref()?;
        let y = Array {
            values: floats(&wait.by_cpu_ns, |v| v as f64),
            at: format!("{}/zone_wait/by_cpu_ns", t.at),
        };
        let x =
            Array { values: (0..y.values.len()).map(|n| n as f64).collect(), at: String::new() };
        let mut across = Axis::linear("CPU", "", [cpus.saturating_sub(1) as f64].into_iter());
        across.ticks.retain(|(v, _)| *v < cpus as f64 && v.fract() == 0.0);
        (across.low, across.high) = (-0.6, cpus as f64 - 0.4);
        let up = Axis::time("waited", most as f64);
        let series = Series::arrays(t.name, i, Shape::Bars, x, y);
        Some(Panel::new(t.name, across, up, vec![series]))
    });
    let note = "Time that each CPU spun on zone locks in the whole run. All panels have the same \
                scale.";
    let body = Body::Panels(panels.collect());
    Figure::new("waiting-by-cpu", "Zone lock waiting by CPU", note, body)
}

fn latency(tracks: &[Named<'_>]) -> Figure {
    let known = || tracks.iter().filter_map(|t| t.track.latency.as_ref());
    let times = known().flat_map(|l| l.buckets.iter().map(|b| b.from_ns.max(1) as f64));
    let counts = known().flat_map(|l| l.buckets.iter().map(|b| b.at_least as f64));
    let (x, y) = (
        Axis::log("request took at least", "ns", times),
        Axis::log("number of requests", "", counts),
    );
    let series: Vec<_> = tracks
        .iter()
        .enumerate()
        .filter_map(|(i, t)| {
            let buckets = &t.track.latency.as_ref()?.buckets;
            let array = |field: &str, of: fn(&crate::track::Bucket) -> u64| Array {
                values: buckets.iter().map(|b| of(b) as f64).collect(),
                at: format!("{}/latency/buckets/*/{field}", t.at),
            };
            let (x, y) = (array("from_ns", |b| b.from_ns), array("at_least", |b| b.at_least));
            Some(Series::arrays(t.name, i, Shape::Line, x, y))
        })
        .collect();
    let panels =
        if series.is_empty() { Vec::new() } else { vec![Panel::new("Requests", x, y, series)] };
    let note = "Number of requests that took at least this long: the further down and left a curve \
                ends, the shorter its longest waits. Both axes are logarithmic.";
    Figure::new("latency", "Latency of requests", note, Body::Panels(panels))
}

fn heap(tracks: &[Named<'_>], end_ns: u64, clock: &str) -> Figure {
    let some = tracks.iter().filter(|t| !t.track.heap.frames.is_empty());
    let map = |t: &Named<'_>| Map {
        title: t.name.to_owned(),
        heap: t.track.heap.clone(),
        at: format!("{}/heap", t.at),
    };
    let maps: Vec<Map> = some.map(map).collect();
    let per_cell = maps.first().map_or(1, |m| m.heap.blocks_per_cell);
    let square = if per_cell == 1 {
        "A square is a pageblock (2 MiB)".to_owned()
    } else {
        format!(
            "A square is {per_cell} neighbouring pageblocks, coloured by their most frequent \
             type"
        )
    };
    let note = format!(
        "{square}, in address order. The colour is the type, darker the more of it is in use; pages \
         on per-CPU lists count as free. The slider sets the {clock}."
    );
    Figure::new("heap", "The heap by pageblock", &note, Body::Maps(maps, end_ns))
}
