//! The figures of a text as data. Names are the kernel's; counts are pages or blocks, as there.

use pageyard::MigrateType;
use pageyard_trace::state::{
    BlockRow, BuddyInfo, Counters, PageTypeInfo, Pageset, Snapshot, Zone, ZoneInfo,
};
use serde_json::{Map, Value, json};

use super::form::Form;
use super::print::{Report, reports};

/// Returns the figures of a text, or `null` if the snapshot does not have them.
pub(super) fn value(snapshot: &Snapshot, form: Form) -> Value {
    match form {
        Form::Zoneinfo => snapshot.zoneinfo.as_ref().map(zoneinfo),
        Form::Buddyinfo => snapshot.buddyinfo.as_ref().map(buddyinfo),
        Form::Pagetypeinfo => snapshot.pagetypeinfo.as_ref().map(pagetypeinfo),
        Form::Vmstat => snapshot.vmstat.as_ref().map(|c| json!({ "counters": counters(c) })),
        Form::ShowMem => reports(snapshot).map(|r| json!({ "zones": list(&r, report) })),
    }
    .unwrap_or(Value::Null)
}

fn list<T>(items: &[T], each: impl Fn(&T) -> Value) -> Vec<Value> {
    items.iter().map(each).collect()
}

fn counters(c: &Counters) -> Map<String, Value> {
    c.iter().map(|(name, n)| (name.to_owned(), n.into())).collect()
}

fn zoneinfo(info: &ZoneInfo) -> Value {
    json!({
        "nodes": list(&info.nodes, |n| json!({ "node": n.node, "counters": counters(&n.counters) })),
        "zones": list(&info.zones, zone),
    })
}

fn zone(z: &Zone) -> Value {
    let m = &z.watermarks;
    json!({
        "node": z.node,
        "zone": z.name,
        "free": z.free,
        "boost": m.boost,
        "min": m.min,
        "low": m.low,
        "high": m.high,
        "promo": m.promo,
        "spanned": z.spanned,
        "present": z.present,
        "managed": z.managed,
        "cma": z.cma,
        "protection": z.protection,
        "counters": counters(&z.counters),
        "pagesets": list(&z.pagesets, pageset),
        "node_unreclaimable": z.node_unreclaimable,
        "start_pfn": z.start_pfn,
    })
}

fn pageset(p: &Pageset) -> Value {
    json!({
        "cpu": p.cpu,
        "count": p.count,
        "high": p.high,
        "batch": p.batch,
        "high_min": p.high_min,
        "high_max": p.high_max,
        "vm_stats_threshold": p.stat_threshold,
    })
}

fn buddyinfo(info: &BuddyInfo) -> Value {
    let row = |r: &pageyard_trace::state::BuddyRow| json!({ "node": r.node, "zone": r.zone, "free_blocks": r.free });
    json!({ "zones": list(&info.rows, row) })
}

fn pagetypeinfo(info: &PageTypeInfo) -> Value {
    let free = |r: &pageyard_trace::state::FreeRow| {
        json!({
            "node": r.node,
            "zone": r.zone,
            "type": r.migratetype,
            "free_blocks": r.counts.iter().map(|n| n.blocks).collect::<Vec<_>>(),
            "at_least": r.counts.iter().any(|n| n.at_least),
        })
    };
    json!({
        "page_block_order": info.block_order,
        "pages_per_block": info.pages_per_block,
        "free": list(&info.free, free),
        "blocks": list(&info.blocks, blocks),
        "mixed_blocks": list(&info.mixed, blocks),
    })
}

fn blocks(r: &BlockRow) -> Value {
    let counts: Map<_, _> = r.counts.iter().map(|(t, n)| (t.clone(), (*n).into())).collect();
    json!({ "node": r.node, "zone": r.zone, "blocks": counts })
}

fn report(r: &Report<'_>) -> Value {
    let (free_pcp, local_pcp) = r.cached();
    let mut v = zone(r.zone);
    let more = json!({
        "reserved_highatomic": r.reserved_highatomic,
        "free_highatomic": r.free_highatomic,
        "free_pcp": free_pcp,
        "local_pcp": local_pcp,
        "free_cma": r.free_cma(),
        "free_blocks": r.blocks.iter().map(|b| b.blocks).collect::<Vec<_>>(),
        "free_block_types": r.blocks.iter().map(|b| {
            let all = MigrateType::ALL.into_iter().zip(b.types);
            all.filter(|(_, any)| *any).map(|(t, _)| t.name()).collect::<Vec<_>>()
        }).collect::<Vec<_>>(),
    });
    if let (Value::Object(v), Value::Object(more)) = (&mut v, more) {
        v.extend(more);
    }
    v
}
