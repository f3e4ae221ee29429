// Made from console/rows.py by `make console`.
export const SCHEMA = "console.gpu.deckhouse.io/v1alpha1";

export type DisplayState = "free" | "reserved" | "partly used" | "used" | "draining" | "faulted" | "in no pool";

export type UnitWaitReason = "UnitsAvailable" | "ReservationPending" | "PoolMissing" | "PoolClosed" | "SchedulingGated" | "PodTooLarge" | "CachesFitNoDevice" | "NodesExcluded" | "UnitsExhausted" | "UnitsFragmented" | "UnitsNotAligned" | "NodesClosed";

export type ReservationEnd = "bound" | "expired" | "released" | "not_observed" | "taken_over";

/** A GPUPool by its name; total = used + reserved + free + withheld, in units. */
export interface PoolRow {
  readonly mode: string;
  readonly resource: string;
  readonly strategy: string;
  readonly phase: string;
  /** Message of the condition Ready, where it is not true. */
  readonly why?: string;
  /** Who may use it, in words; empty where it is open to all. */
  readonly access?: string;
  readonly total?: number;
  readonly used?: number;
  readonly reserved?: number;
  readonly free?: number;
  readonly withheld?: number;
  /** Most units that are free on one node. */
  readonly largestFree?: number;
  /** Pods that wait for its units. */
  readonly waiting?: number;
  readonly nodes?: number;
  /** Units of a pod (1, 2, 4, 8) -> how many such pods would be placed now, one size at a time; absent where the pods of all namespaces may not be listed. */
  readonly fits?: Readonly<Record<number, number>>;
}

export type NodeRowState = "Ready" | "NotReady" | "Cordoned" | "Missing" | "Unknown";

/** A node with a device, by its name. */
export interface NodeRow {
  readonly state: NodeRowState;
  readonly products?: readonly string[];
  readonly pools?: readonly string[];
}

/** A GPUDevice by its name. */
export interface DeviceRow {
  readonly node: string;
  /** PCI address: the order within a node. */
  readonly address: string;
  /** A word of `DisplayState`: free, reserved, partly used, used, draining, faulted, in no pool. */
  readonly look: string;
  readonly pool?: string;
  readonly product?: string;
  readonly units?: number;
  readonly used?: number;
  readonly reserved?: number;
  /** Pods that have or reserve its units, as namespace/name; those alone that the viewer may see. */
  readonly holders?: readonly string[];
}

/** A pod that waits for units, by namespace/name. */
export interface WaitingRow {
  readonly namespace: string;
  readonly name: string;
  readonly pool: string;
  readonly units: number;
  readonly created: string;
  /** Its place among the pool's waiting pods, by priority and age, from 1. */
  readonly position?: number;
  readonly priority?: number;
  /** A value of `UnitWaitReason`; empty while it is not known yet. */
  readonly reason?: string;
  readonly message?: string;
  /** What would help, the least change first; each was tried on a copy. Empty where pods of all namespaces may not be listed. */
  readonly remedies?: readonly string[];
  /** kube-scheduler's last refusal. */
  readonly scheduler?: string;
}

/** A live reservation, by its id. */
export interface ReservationRow {
  readonly namespace?: string;
  /** Namespace and pod are empty where the viewer may not see the pod, the pod while it has no name yet. */
  readonly pod?: string;
  readonly pool: string;
  readonly node?: string;
  readonly units: number;
  readonly created?: string;
  /** Empty where it does not expire: its Binding is under way. */
  readonly expires?: string;
}

/** A reservation that ended, by its id; the last 200 of the last hour. */
export interface EndedRow {
  readonly namespace?: string;
  readonly pod?: string;
  readonly pool: string;
  readonly node?: string;
  readonly units: number;
  /** bound, expired, released, not_observed or taken_over. */
  readonly end: string;
  readonly at: string;
}

/** What the pods of a namespace have of a pool, in units, by namespace and pool joined by a space. */
export interface ShareRow {
  readonly namespace: string;
  readonly pool: string;
  readonly pods?: number;
  readonly used?: number;
  readonly reserved?: number;
  readonly waiting?: number;
}

export type RowHealth = "good" | "warning" | "bad";

/** A finding about the control plane, a pool, a node or a device, by its subject. */
export interface HealthRow {
  readonly state: RowHealth;
  readonly text: string;
  readonly cure?: string;
  /** Pools that the device may join by a decision, where it waits for one. */
  readonly pools?: readonly string[];
}

/** Whose page it is. */
export interface ViewerRow {
  /** Empty in `kubectl gpu console`: the user of the kubectl context. */
  readonly name?: string;
  /** The one namespace whose pods are seen; empty where `all_namespaces`, or where no pod is seen. */
  readonly namespace?: string;
  readonly allNamespaces?: boolean;
  readonly nodes?: boolean;
  /** Whether the query parameter `namespace` of the stream chooses another one. */
  readonly canChooseNamespace?: boolean;
  /** Whether this console takes decisions on devices; the API server says whether the viewer may make them. */
  readonly canDecide?: boolean;
}

/** Figures of a pool over the last hour: one value of each list for each time. */
export interface PoolHistory {
  /** Seconds since the epoch. */
  readonly at?: readonly number[];
  readonly used?: readonly number[];
  readonly reserved?: readonly number[];
  readonly free?: readonly number[];
  readonly withheld?: readonly number[];
  readonly waiting?: readonly number[];
}

/** Everything that the viewer may see. */
export interface ConsoleSnapshot {
  readonly schema?: string;
  /** Version of the program. */
  readonly version: string;
  /** What it is read from, in words. */
  readonly origin: string;
  readonly at: string;
  /** Reservations that ended, and history, are known from here on. */
  readonly since: string;
  readonly viewer: ViewerRow;
  /** What the picture is without, and why; a sentence each. */
  readonly partial?: readonly string[];
  readonly pools: Readonly<Record<string, PoolRow>>;
  readonly nodes: Readonly<Record<string, NodeRow>>;
  readonly devices: Readonly<Record<string, DeviceRow>>;
  readonly waiting: Readonly<Record<string, WaitingRow>>;
  readonly reservations: Readonly<Record<string, ReservationRow>>;
  readonly ended: Readonly<Record<string, EndedRow>>;
  readonly shares: Readonly<Record<string, ShareRow>>;
  readonly health: Readonly<Record<string, HealthRow>>;
  readonly history: Readonly<Record<string, PoolHistory>>;
}

/** What changed since the event before. */
export interface ConsoleChange {
  readonly at: string;
  readonly partial?: readonly string[];
  readonly pools?: Readonly<Record<string, PoolRow | null>>;
  readonly nodes?: Readonly<Record<string, NodeRow | null>>;
  readonly devices?: Readonly<Record<string, DeviceRow | null>>;
  readonly waiting?: Readonly<Record<string, WaitingRow | null>>;
  readonly reservations?: Readonly<Record<string, ReservationRow | null>>;
  readonly ended?: Readonly<Record<string, EndedRow | null>>;
  readonly shares?: Readonly<Record<string, ShareRow | null>>;
  readonly health?: Readonly<Record<string, HealthRow | null>>;
}

export interface StreamEnd {
  readonly message: string;
  /** Whether the viewer's token is no longer accepted; otherwise the page connects again. */
  readonly isLoginNeeded?: boolean;
}

/** A pod that has units of a device or of a node. */
export interface HolderEntry {
  /** namespace/name; empty where the viewer may not see it. */
  readonly pod?: string;
  readonly units: number;
  readonly isReserved?: boolean;
  /** Time of the end of a reservation that expires. */
  readonly expires?: string;
  /** Time of creation of the pod. */
  readonly created?: string;
}

export interface ConditionEntry {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
  readonly since?: string;
}

/** A link to another device of the node. */
export interface LinkEntry {
  /** Name of the GPUDevice, or its UUID where it is none of ours. */
  readonly peer: string;
  readonly kind: string;
}

/** Answer of /api/v1/devices/NAME. */
export interface DeviceDetail {
  readonly schema?: string;
  readonly name: string;
  readonly row: DeviceRow;
  readonly uuid?: string;
  readonly memoryMib?: number;
  readonly computeCapability?: string;
  readonly numaNode?: number;
  /** Mode and instances, in words; empty for a device without MIG. */
  readonly mig?: string;
  /** The pool for which it is approved; empty without an approval. */
  readonly assignment?: string;
  readonly links?: readonly LinkEntry[];
  /** 0 where none was reported. */
  readonly lastXid?: number;
  readonly lastXidAt?: string;
  readonly conditions?: readonly ConditionEntry[];
  readonly holders?: readonly HolderEntry[];
}

/** Units of the pod's pool on one node. */
export interface NodeFigures {
  readonly node: string;
  readonly total?: number;
  readonly free?: number;
  readonly used?: number;
  readonly reserved?: number;
  readonly withheld?: number;
  /** Why the node does not take the pod; empty where it does. */
  readonly because?: string;
  readonly holders?: readonly HolderEntry[];
}

/** Answer of /api/v1/pods/NAMESPACE/NAME, for a pod that waits. */
export interface PodDetail {
  readonly schema?: string;
  /** namespace/name. */
  readonly name: string;
  readonly row: WaitingRow;
  /** Most free units first; of large pools the first 16. */
  readonly nodes?: readonly NodeFigures[];
  readonly nodesTotal?: number;
}

export interface PlacedPods {
  readonly node: string;
  readonly pods: number;
  readonly units: number;
}

/** Answer of /api/v1/what-if?pool=POOL&units=N&times=K&cordon=NODE (the last one repeatable). */
export interface WhatIfAnswer {
  readonly schema?: string;
  /** How many were asked about. */
  readonly pods: number;
  readonly placed?: readonly PlacedPods[];
  /** Whether all of them would be placed. */
  readonly fits?: boolean;
  readonly message: string;
  /** What would help the first one that would not be placed. */
  readonly remedies?: readonly string[];
}

/** Answer of POST /api/v1/decisions: what was written, or would be. */
export interface DecisionAnswer {
  readonly schema?: string;
  readonly device: string;
  readonly node: string;
  /** Changes with the device's identity, its pool and its approval; a decision with another one is refused. */
  readonly version: string;
  /** The merge patch, as JSON. */
  readonly patch: string;
  /** What it brings about. */
  readonly text: string;
  readonly isDry?: boolean;
}

/** Body of every answer that is not 2xx. */
export interface ErrorAnswer {
  readonly error: string;
}
