/**
 * What the page knows, as signals.
 *
 * Rows stay in plain maps: 40,000 signals would cost more than they spare. A section has a version that moves when it
 * changes, and each node that is shown one of its own. Changes wait up to a tenth of a second and are applied together;
 * versions of large sections move twice a second at most, because whole lists are sorted by them.
 */

import { batch, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { DeviceIndex } from "../grid/deviceIndex.ts";
import type { ConsoleChange, ConsoleSnapshot, ViewerRow } from "../rows.ts";
import type { ServerEvent } from "../stream/sse.ts";
import { momentMs } from "../text/format.ts";
import { receivedAt } from "./clock.ts";
import { PoolSeries } from "./history.ts";
import { steady } from "./steady.ts";
import { applyChange, emptyTables, SECTIONS, type Section, type Tables, tablesOf } from "./tables.ts";

const TOGETHER_MS = 100;
const LARGE = 100;
const LARGE_EVERY_MS = 500;

export interface Origin {
  readonly version: string;
  readonly origin: string;
  readonly since: string;
  readonly viewer: ViewerRow;
}

type Versions = Readonly<Record<Section | "grid", Signal<number>>>;

class Store {
  readonly origin = signal<Origin | null>(null);
  readonly partial = signal<readonly string[]>([]);
  /** Time of the last event, on the cluster's clock. */
  readonly asOf = signal("");
  /** Whether the console is of another version than when the page was loaded. */
  readonly isOutdated = signal(false);
  readonly index = new DeviceIndex();
  readonly series = new Map<string, PoolSeries>();
  readonly versions: Versions;
  private held: Tables = emptyTables();
  private readonly nodeVersions = new Map<string, Signal<number>>();
  private readonly late = new Set<Section | "grid">();
  private pending: ConsoleChange[] = [];
  private timer = 0;
  private firstVersion: string | null = null;

  constructor() {
    const versions = Object.fromEntries([...SECTIONS, "grid"].map((section) => [section, signal(0)]));
    this.versions = versions as unknown as Versions;
  }

  /** The rows of a section; whoever reads them is told when they change. */
  rows<S extends Section>(section: S): Tables[S] {
    void this.versions[section].value;
    return this.held[section];
  }

  /** The rows of a section as they are now; nobody is told when they change. */
  peek<S extends Section>(section: S): Tables[S] {
    return this.held[section];
  }

  /** Moves when the node, or one of its devices, changes. */
  nodeVersion(node: string): ReadonlySignal<number> {
    let version = this.nodeVersions.get(node);
    if (version === undefined) {
      version = signal(0);
      this.nodeVersions.set(node, version);
    }
    return version;
  }

  receive(event: ServerEvent): void {
    if (event.kind === "snapshot") {
      this.pending = [];
      this.replace(JSON.parse(event.data) as ConsoleSnapshot);
    } else if (event.kind === "change") {
      this.pending.push(JSON.parse(event.data) as ConsoleChange);
      // Not by animation frames: those of a page in the background never come.
      this.timer ||= window.setTimeout(() => this.flush(), TOGETHER_MS);
    }
    receivedAt(this.pending.at(-1)?.at ?? this.asOf.peek());
  }

  /** Know nothing any more: the viewer may not see it. */
  forget(): void {
    this.pending = [];
    batch(() => {
      this.origin.value = null;
      this.hold(emptyTables());
    });
  }

  private replace(snapshot: ConsoleSnapshot): void {
    const { version, origin, since, viewer } = snapshot;
    this.firstVersion ??= version;
    batch(() => {
      this.isOutdated.value = version !== this.firstVersion;
      this.origin.value = { version, origin, since, viewer };
      this.partial.value = snapshot.partial ?? [];
      this.asOf.value = snapshot.at;
      this.hold(tablesOf(snapshot));
      for (const pool of this.held.pools.keys()) this.series.set(pool, new PoolSeries(snapshot.history[pool]));
      this.noteHistory(snapshot.at);
    });
  }

  private hold(tables: Tables): void {
    this.held = tables;
    this.index.replaceAll(tables.devices);
    this.series.clear();
    for (const moved of Object.values(this.versions)) moved.value += 1;
    for (const moved of this.nodeVersions.values()) moved.value += 1;
  }

  private flush(): void {
    this.timer = 0;
    const changes = this.pending;
    this.pending = [];
    batch(() => {
      for (const change of changes) this.apply(change);
    });
  }

  private apply(change: ConsoleChange): void {
    const touched = applyChange(this.held, change);
    const nodes = new Set(touched.nodes);
    let isReshaped = false;
    for (const name of touched.devices ?? []) {
      const row = this.held.devices.get(name);
      for (const node of [this.index.nodeOf(name), row?.node]) if (node !== undefined) nodes.add(node);
      isReshaped = this.index.update(name, row) || isReshaped;
    }
    for (const node of nodes) this.moveNode(node);
    for (const section of SECTIONS) if (touched[section] !== undefined) this.move(section);
    if (isReshaped) this.versions.grid.value += 1;
    else if (touched.devices !== undefined) this.moveLater("grid");
    if (change.partial !== undefined) this.partial.value = change.partial;
    this.asOf.value = change.at;
    this.noteHistory(change.at);
  }

  private moveNode(node: string): void {
    const version = this.nodeVersions.get(node);
    if (version !== undefined) version.value += 1;
  }

  private move(section: Section): void {
    if (this.held[section].size <= LARGE) this.versions[section].value += 1;
    else this.moveLater(section);
  }

  private moveLater(section: Section | "grid"): void {
    if (this.late.size === 0) window.setTimeout(() => this.moveLate(), LARGE_EVERY_MS);
    this.late.add(section);
  }

  private moveLate(): void {
    batch(() => {
      for (const section of this.late) this.versions[section].value += 1;
    });
    this.late.clear();
  }

  private noteHistory(at: string): void {
    const atMs = momentMs(at);
    if (atMs === null) return;
    for (const [pool, row] of this.held.pools) {
      const series = this.series.get(pool) ?? new PoolSeries(undefined);
      this.series.set(pool, series);
      series.note(Math.floor(atMs / 1000), row);
    }
  }
}

export const store = new Store();

/** The names of all pools, in order. */
export const poolNames: ReadonlySignal<readonly string[]> = steady(() => [...store.rows("pools").keys()].sort());
